"""The observations of the sample domain `shop_floor`."""
