"""Orders, the stock that they need, and refunds. One file per aggregate."""
