"""Paths by which a registry comes to trust a block: from a block that it trusts, or that its source vouches for."""
