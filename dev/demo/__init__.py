"""The demos: the whole service on development chains, used as a user would use it."""
