"""The sample domain `orders`: customers' orders, the stock that they need, and refunds."""
