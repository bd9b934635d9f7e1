"""What is new beside the shop's database: payments, recorded as events."""
