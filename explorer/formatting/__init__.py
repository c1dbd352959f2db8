"""Formatting of values for pages and files."""
