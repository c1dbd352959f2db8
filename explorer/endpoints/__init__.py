"""Endpoints of the API that read what proving has stored. `config.urls` adds them."""
