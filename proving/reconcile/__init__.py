"""Brings the queries of one source block forward: what is observed, what is decided, what is done."""
