"""The database of a small web shop, which existed before Headwater and stays."""
