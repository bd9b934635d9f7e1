"""One file per type of observation. May import `commands.observation` only."""
