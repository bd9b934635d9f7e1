"""Orders for stock that may not be there: three aggregates, and a process that ends with a delivery or a refund."""
