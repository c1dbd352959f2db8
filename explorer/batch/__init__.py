"""The page of a batch, and its files."""
