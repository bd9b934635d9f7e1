"""What is read of the sample domain `listings`."""
