"""A Kafka topic as a store."""
