"""One folder per shipped domain, with one pure file per aggregate. May import only what `commands` exports."""
