"""Properties for sale: an aggregate, views in each store, and the data of 932 real sales."""
