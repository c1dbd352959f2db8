"""Delivers what `queries.webhooks` has written."""
