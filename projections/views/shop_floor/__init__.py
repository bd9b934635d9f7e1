"""The views of the sample domain `shop_floor`."""
