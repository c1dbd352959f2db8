"""Reconcile: turns that move queries through their steps. Each turn observes, decides and acts.

Read `turn` first, which calls the others in this order: `observe` reads rows and chains, `decide` answers an
`observation` with what to do, `proofs` fetches what a block lacks, and `apply` writes and sends. `unsigned` uses the
same functions for batches that others pay for.
"""
