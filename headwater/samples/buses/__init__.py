"""Buses: the newest place of each, and legs between two places."""
