"""The sample domain of a web shop: its process."""
