"""A user's own package: `HEADWATER_MODULES=shop.domain,shop.views` is all that Headwater needs to run it."""
