"""The project's set-up. It runs before anything is installed."""
