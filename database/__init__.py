"""SQL helpers, locks, due rows and bulk writes. Nothing here knows the models of this service."""
