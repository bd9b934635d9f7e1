"""A running deployment for tests: servers in containers or as child processes, and Headwater's programs on them.

Users import it from `headwater.testing`.
"""
