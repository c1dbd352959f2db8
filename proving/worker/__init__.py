"""The worker: what is due, whose turn it is, and the threads that do it."""
