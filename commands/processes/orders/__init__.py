"""The process of the sample domain `orders`."""
