"""Sample domains of observations: random traffic with a seed, and the rows that plain Python expects of it."""
