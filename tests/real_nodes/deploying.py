"""Deploying on a chain whose blocks somebody must ask for."""

from collections.abc import Callable

from proving.models import FactsRegistry, Transaction
from proving.registry.deploying import DeploymentError, deploy


def deployed_on(chain_id: int, mine: Callable[[], None]) -> FactsRegistry:
    """Deploy the registry of a chain for its own facts."""
    for _ in range(10):
        try:
            return deploy(chain_id, chain_id, seconds=0)
        except DeploymentError:
            mine()
    raise AssertionError(list(Transaction.objects.values_list("state", "last_error")))
