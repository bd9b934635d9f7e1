"""Sales to customers, their tiers, and the tax rates of countries. One file per aggregate."""
