"""Traces of commands through all processes: import `spans`. Only `recording` knows OpenTelemetry."""
