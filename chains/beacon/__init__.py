"""Proofs of old execution blocks' hashes by the beacon chain (docs/developing/proof-format.md)."""
