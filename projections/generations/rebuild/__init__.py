"""Builds generations and makes them live, or goes back to the one before."""
