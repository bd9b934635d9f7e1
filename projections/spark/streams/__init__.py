"""The engine of stream views: a Structured Streaming query per generation, in micro-batches."""
