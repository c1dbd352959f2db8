"""Measurements of the service. `make bench` prints them; they are no tests and pass as long as they run."""
