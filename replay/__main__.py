"""`python -m replay`, the same as the console script `replay`."""

from replay.cli import main

if __name__ == "__main__":
    main()
