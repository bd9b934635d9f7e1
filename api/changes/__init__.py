"""Following a view's changes: `patches` tell which rows, the stores what they are. May import what `api.reads` may."""
