"""The sample domain `listings`: properties for sale."""
