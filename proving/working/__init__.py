"""Working: a worker with its lanes, heads of chains, counters and pruning."""
