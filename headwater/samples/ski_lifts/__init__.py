"""Rides on ski lifts: windows that overlap, and the best of each."""
