"""Elasticsearch as a store."""
