"""`streams`, which every deployment has, and one folder per shipped domain, with one file per view.

Each file is a declaration. May import the names that `projections` exports, and aggregates' events.
"""
