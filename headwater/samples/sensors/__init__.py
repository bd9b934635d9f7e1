"""Thermometers: averages in windows, and silences."""
