"""A request that works as it stands: a newcomer's first query."""

from django.conf import settings

from accounts.models import User
from config.chains import get_chains
from explorer.snippets import submitting
from proving.models import ChainHead, FactsRegistry

# Below the head, so that a reorg is unlikely to reach it; far from where blocks become too old.
_BLOCKS_BELOW_HEAD = 2


def command(user: User | None) -> str | None:
    """A shell command that asks for one balance, or None where nothing is connected.

    The account is the user's own, else the facts registry: a contract that is there. What is not known yet, because no
    worker has looked at the chain, is left to fill in; so is the fee where gas has a price.
    """
    connection = next(iter(get_chains().connections), None)
    if connection is None:
        return None
    head = ChainHead.objects.filter(pk=connection.source).first()
    registry = FactsRegistry.objects.filter(
        source_chain_id=connection.source, destination_chain_id=connection.destination, deployed_at__isnull=False
    ).first()
    block = str(max(head.number - _BLOCKS_BELOW_HEAD, 0)) if head else "<number>"
    fee = "0" if get_chains().chain(connection.destination).test_network else "<fee in wei>"
    address = user.address if user else registry.address if registry else "<address>"
    # Written by hand, because it is read more often than sent.
    body = f"""{{
  "destinationChainId": "{connection.destination}",
  "fee": "{fee}",
  "data": {{"{connection.source}": {{"block:{block}": {{"accounts": {{
    "{address}": {{"props": ["BALANCE"]}}
  }}}}}}}}
}}"""
    return submitting(settings.BASE_URL, body)
