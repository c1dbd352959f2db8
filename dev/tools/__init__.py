"""What sets the project up, before anything is installed."""
