"""Chains: their configuration, JSON-RPC, headers and proofs. Independent of Django."""
