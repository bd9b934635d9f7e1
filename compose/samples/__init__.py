"""What makes a sample domain live in `run` and `demo`: its interface, its traffic, and the check of its rows."""
