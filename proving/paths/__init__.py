"""Paths by which a registry comes to trust a block: from one it trusts, or one that is vouched for."""
