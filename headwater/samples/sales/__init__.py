"""Sales, tiers and tax rates: stream views of events, such as the rate that applied when something was sold."""
