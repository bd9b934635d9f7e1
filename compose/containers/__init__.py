"""Headwater in containers: the servers' images and settings, the compose file made of them, and what images need."""
