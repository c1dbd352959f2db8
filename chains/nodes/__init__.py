"""Nodes of chains: what they are asked, how requests are divided among them, and what they answer."""
