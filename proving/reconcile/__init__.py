"""Brings the queries of source blocks forward: a turn observes, decides and acts."""
