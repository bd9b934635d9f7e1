"""Keeping processes alive: started in order, probed, restarted, and never orphaned. Knows nothing of views."""
