"""How it gets proven: the pipeline of the four steps, the registry, transactions and the worker."""
