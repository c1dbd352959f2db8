"""Reconcile: turns that move queries through their steps. Each turn observes, decides and acts."""
