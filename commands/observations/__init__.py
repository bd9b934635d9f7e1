"""One file per type of observation. May import `commands.declaring.observation` only."""
