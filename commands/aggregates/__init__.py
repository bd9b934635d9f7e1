"""One file per aggregate, each pure. May import `commands.declaring.aggregate` and `commands.errors` only."""
