"""Long runs: attacks, incidents, chaos, fuzzing, mutants and benchmarks.

Each has a make target. `make test` runs short samples.
"""
