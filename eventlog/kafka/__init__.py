"""The log on Kafka: its clients, groups and writers, and topics created and checked at start."""
