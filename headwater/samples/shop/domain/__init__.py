"""Customers, imported from a captured database, and their payments. One file per aggregate."""
