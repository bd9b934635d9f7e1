"""Supervises processes: starts them in order, probes and restarts them, leaves no orphans. Knows nothing of views."""
