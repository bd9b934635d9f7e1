"""What is observed of the sample domain `listings`."""
