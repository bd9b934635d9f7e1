"""Runs the parts together: the local stack of real servers, and Headwater's processes. Import `Stack` from here."""
