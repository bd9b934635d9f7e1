"""Who calls the API, and what a caller may do. May import the errors of `api`; routes and middlewares import it."""
