"""Rows in the order of their time: steps with a state, patterns, and rows before they are final."""
