"""The one reader of events: a view compiled to Python, which makes rows, or patches of rows."""
