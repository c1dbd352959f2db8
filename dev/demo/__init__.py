"""`make demo` and `make demo-cross-chain`: the whole service on development chains, as a user sees it."""
