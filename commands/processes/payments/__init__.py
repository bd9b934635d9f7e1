"""The sample domain `payments`: from alerts to blocked cards."""
