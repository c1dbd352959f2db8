"""`make demo`: the whole service on a development chain, from sign-in to the proven balance, as a user sees it."""
