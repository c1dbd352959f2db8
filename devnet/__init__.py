"""Development chains, and child processes that end with their parent: for the demo, tests, benchmarks and attacks."""
