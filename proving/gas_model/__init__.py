"""How much gas is needed: of proofs, of what remains of a batch, and of tries by their shapes."""
