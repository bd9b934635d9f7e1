"""Which generations there are, which are live, and what is known of each."""
