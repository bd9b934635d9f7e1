"""One folder per shipped domain, in it one file per type of observation. May import the words of `commands` only."""
