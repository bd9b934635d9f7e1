"""The routes, one file per subject. May import everything of `api` but `app`."""
