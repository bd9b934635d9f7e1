"""The stores of views: one file per store, behind the Protocol in `store.py`."""
