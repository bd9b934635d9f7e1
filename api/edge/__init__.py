"""What every request passes before its route: ASGI middlewares. May import the errors and problems of `api`."""
