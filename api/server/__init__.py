"""One process, or several workers, that listen: uvicorn, TLS, and how a connection is treated."""
