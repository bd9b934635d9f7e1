"""Waits until a view has what `after=` names."""
