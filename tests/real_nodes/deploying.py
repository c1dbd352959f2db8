"""Deploy on a chain whose blocks are mined on request."""

import itertools
from collections.abc import Callable
from typing import Any

from django.db import connection

from proving.models import FactsRegistry
from tests.deployed import deploy


def deployed_on(chain_id: int, mine: Callable[[], None]) -> FactsRegistry:
    """Deploy the chain's registry for its own facts, and return it. Call `mine` after every 20 database statements."""
    statements = itertools.count(1)

    def pass_time(execute: Any, *more: Any) -> Any:
        if next(statements) % 20 == 0:
            mine()
        return execute(*more)

    with connection.execute_wrapper(pass_time):
        return deploy(chain_id, chain_id)
