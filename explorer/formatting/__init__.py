"""How values are written, wherever they are shown."""
