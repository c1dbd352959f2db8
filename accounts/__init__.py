"""Who you are: wallet sign-in, users, API keys and their page."""
