"""Personal values: sealed with a key per person, which can be destroyed. All packages of Headwater may import it."""
