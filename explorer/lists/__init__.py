"""Lists of batches and of chains, the home page and the dashboard."""
