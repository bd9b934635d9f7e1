"""One file per server of the local stack; each says how to prepare, run and probe it."""
