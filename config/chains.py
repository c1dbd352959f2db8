"""The configured chains, read once per process."""

import os
from functools import cache

from django.conf import settings

from chains.config import Chains, load_chains


@cache
def get_chains() -> Chains:
    """The chains of `settings.CHAINS_FILE`. `get_chains.cache_clear()` makes the next call read it again."""
    return load_chains(settings.CHAINS_FILE, os.environ)
