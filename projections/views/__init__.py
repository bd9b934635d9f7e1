"""`streams`, which every deployment has, and one folder per shipped domain, in it one file per view.

Each is a declaration. May import the words of `projections` and aggregates' events.
"""
