"""Traces of commands through all processes: import `spans`; programs that start also `exporting`. Only `recording`
knows OpenTelemetry."""
