"""The search for the storage slot that a view call answers from."""
