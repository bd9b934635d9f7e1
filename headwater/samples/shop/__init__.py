"""A database that is captured: its rows in views, and as causes of commands."""
