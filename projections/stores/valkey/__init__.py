"""Valkey as a store, with its rankings."""
