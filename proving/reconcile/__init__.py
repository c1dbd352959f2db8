"""Reconcile, which moves the queries of source blocks forward. A turn observes, decides and acts."""
