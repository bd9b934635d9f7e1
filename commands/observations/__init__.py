"""One folder per shipped domain, with one file per type of observation. May import only what `commands` exports."""
