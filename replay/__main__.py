"""`python -m replay`, the same as the console script `replay`."""


def main() -> None:
    """Run the command line."""
    # here, because each process of a fold imports this module, and needs nothing of the command line
    from replay import cli  # noqa: PLC0415

    cli.main()


if __name__ == "__main__":
    main()
