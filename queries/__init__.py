"""What was asked and how far it is: batches, queries, steps, the request schema and the HTTP API."""
