"""The HTTP API: accepts commands, serves views and streams. May import `replay` and the packages below it."""
