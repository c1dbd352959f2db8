"""The form in which people submit a batch."""
