"""People who sign in with a wallet, and their API keys. This is not about the accounts of a chain."""
