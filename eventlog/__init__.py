"""The log: envelopes, topics, and the Kafka and in-memory adapters. Imports nothing else of Headwater."""
