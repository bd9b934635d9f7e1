"""Payments by thieves: stream views that join and order reports, and a process that blocks cards."""
