"""Looks after the views of a running read side: their lag, and what stopped."""
