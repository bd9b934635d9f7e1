"""`python -m eventlog.sources`: registers captured databases with Kafka Connect, and operates them."""

from eventlog.capturing.cli import main

if __name__ == "__main__":
    main()
