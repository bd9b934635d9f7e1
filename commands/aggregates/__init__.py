"""One file per aggregate, each pure. May import `commands.aggregate` and `commands.errors` only."""
