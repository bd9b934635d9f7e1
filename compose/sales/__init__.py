"""The sample domain `sales`: random traffic with a seed, and the rows that plain Python expects of its events."""
