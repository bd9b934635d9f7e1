"""Payments after guessed cards: a pattern of reports in their order."""
