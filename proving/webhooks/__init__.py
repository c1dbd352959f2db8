"""Delivery of events that `queries.webhooks` has stored."""
