"""Erases persons by destroying their keys, and rotates master keys; knows the store of keys and the audit log."""
