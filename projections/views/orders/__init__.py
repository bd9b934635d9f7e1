"""Views of the sample domain `orders`."""
