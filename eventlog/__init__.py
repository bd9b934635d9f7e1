"""The log: envelope, codec, topics, and the Kafka and in-memory adapters. Imports nothing from Headwater."""
