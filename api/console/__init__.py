"""The console: pages for people, at `/console`. Imported by `api.app`; may import the routes and everything below."""
