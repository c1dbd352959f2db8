"""A first query for new users: a request that works unchanged."""

from django.conf import settings

from chains.chains_file import Connection
from config.configured_chains import get_chains
from explorer.batch.code_snippets import submitting
from proving.models import ChainHead, Signer

# A reorg is unlikely to reach a block this far below the head.
_BLOCKS_BELOW_HEAD = 2
# On public chains it has a balance: coins that people have burnt.
_ZERO_ADDRESS = f"0x{0:040x}"


def command() -> str | None:
    """Return a shell command that requests one balance, which isn't 0. None if no chains are connected.

    The command has placeholders for unknown values: the block if no worker has read the chain's head, and the fee if
    gas has a price.
    """
    connection = next(iter(get_chains().connections), None)
    if connection is None:
        return None
    destination = get_chains().chain(connection.destination_id)
    if not destination.all_signers:
        pays = '"sender": "self"'
    else:
        pays = f'"fee": "{"0" if destination.test_network else "<fee in wei>"}"'
    signers = Signer.objects.filter(chain_id=connection.source_id).values_list("address", flat=True)
    address = signers.order_by("pk").first() or _ZERO_ADDRESS
    recent = _recent_block(connection)
    block = "<number>" if recent is None else recent
    # Formatted by hand for readers, because `json.dumps` would spread it over more lines.
    body = f"""{{
  "destinationChainId": "{connection.destination_id}",
  {pays},
  "data": {{"{connection.source_id}": {{"block:{block}": {{"accounts": {{
    "{address}": {{"props": ["BALANCE"]}}
  }}}}}}}}
}}"""
    return submitting(settings.BASE_URL, body)


def _recent_block(connection: Connection) -> int | None:
    """Return a recent block that the destination will soon trust.

    Only on the source chain itself may the block be one that isn't final.
    """
    head = ChainHead.objects.filter(pk=connection.source_id).first()
    if head is None:
        return None
    return max(head.number - _BLOCKS_BELOW_HEAD, 0) if connection.block_hash_source == "native" else head.final
