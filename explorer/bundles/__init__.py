"""Proof bundles: files with which anybody can check facts without this service."""
