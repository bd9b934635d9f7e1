"""The sample domain `payments`: cards, which are open or blocked."""
