"""PostgreSQL: its address, checks, publication and slot, types, and properties of its connector."""
