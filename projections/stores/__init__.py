"""Where views live: one file per store, behind the Protocol in `store.py`."""
