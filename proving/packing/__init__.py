"""Packing: which transactions prove a block's missing facts, and the gas that they take."""
