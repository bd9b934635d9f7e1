"""What every program of Headwater needs to run: logs, metrics, modules, variables, workers."""
