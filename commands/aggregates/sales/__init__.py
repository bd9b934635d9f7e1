"""The sample domain `sales`: sales to customers, their tiers, and the tax rates of countries."""
