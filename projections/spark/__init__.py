"""The engine: views compiled to Spark, run live (patches) and in bulk (replay). May import `projections` and below."""
