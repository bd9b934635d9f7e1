"""`headwater sources`: registers captured databases, and operates them."""

from headwater.eventlog.capturing.cli import main

if __name__ == "__main__":
    main()
