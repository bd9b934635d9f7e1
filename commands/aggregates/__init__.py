"""One folder per shipped domain, in it one file per aggregate, each pure. May import the words of `commands` only."""
