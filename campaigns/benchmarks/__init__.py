"""Measurements of the service. `make bench-parts` prints most; they are no tests and pass as long as they run."""
