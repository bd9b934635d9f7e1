"""The routes, one file a subject. May import everything of `api` but `app`."""
