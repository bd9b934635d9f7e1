"""The view `streams`, which every deployment has."""
