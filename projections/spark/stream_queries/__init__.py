"""The engine of stream views: queries of Structured Streaming, in batches per generation, or in real time."""
