"""What a chain is: configuration, JSON-RPC, headers and proofs. Knows no Django and can be used without it."""
