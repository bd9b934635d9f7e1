"""Saved searches, and the homes that they find: events and reports in one stream view."""
