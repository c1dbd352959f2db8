"""The signers' transactions. Each is sent once and monitored until final. Only this package signs and broadcasts.

Read `orders` first: what is asked for becomes a transaction, by a signer of `signers`. `signing` signs, stores and
broadcasts it, and finds out why nodes refuse it. `transaction_monitor` follows it until it is final, and `replacement`
raises its fees or cancels it meanwhile.
"""
