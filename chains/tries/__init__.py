"""Tries: their proofs, what their leaves hold, and the packed calldata that the facts registry takes."""
