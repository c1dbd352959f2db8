"""Long runs with targets of their own: attacks, chaos, fuzzing, mutants and benchmarks. `make test` runs samples."""
