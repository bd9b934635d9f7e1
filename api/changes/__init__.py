"""Follows a view's changes: `patches` name the changed rows, stores have them. May import what `api.reads` may."""
