"""Views over the database of a web shop, whose tables are captured."""
