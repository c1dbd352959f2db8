"""The signers' transactions. Each is sent once and monitored until final. Only this package signs and broadcasts."""
