"""What makes a sample live in `run` and `demo`: its interface, its traffic, and the check of its rows."""
