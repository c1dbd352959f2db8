"""The beacon chain, as far as it proves hashes of old execution blocks (docs/developing/proof-format.md)."""
