"""Visitors of a site: counts per window, visits, and searches joined with clicks."""
