"""Delivery of the events that `queries.webhooks` has stored."""
