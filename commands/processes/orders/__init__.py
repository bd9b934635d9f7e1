"""What follows from the events of the sample domain `orders`."""
