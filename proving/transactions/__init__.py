"""Transactions of the signers: sent once each, watched until they are final. Only this package signs and broadcasts."""
