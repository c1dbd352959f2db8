"""How much may wait to be mined, and how much of it of one user: nonces are mined in order, so that whoever comes next
waits for all that was sent before.

Each user may have as much as is left free (a dynamic threshold: Choudhury and Hahne, "Dynamic Queue Length Thresholds
for Shared-Memory Packet Switches", 1998): one alone takes half of the room, the next half of the rest.
"""

from proving.models import Transaction, TransactionState
from proving.transactions.intents import MAX_GAS
from queries.models import Block

# On one destination: transactions, about as many as nodes keep of one account, and gas, a few blocks' worth.
_TRANSACTIONS, _GAS = 64, 120_000_000


def left(block: Block, sender: str) -> int:
    """How many more transactions may be sent for the user in whose turns the block is, however much gas each has.

    Whoever has none under way may always send one.
    """
    pending = Transaction.objects.filter(
        signer__chain_id=block.destination_chain_id, signer__address=sender, state=TransactionState.PENDING
    )
    gas = dict(pending.values_list("pk", "gas_limit"))
    own = set(pending.filter(queries__block__turn_of=block.turn_of_id).values_list("pk", flat=True))
    more = _TRANSACTIONS - len(gas) - len(own)
    more_gas = _GAS - sum(gas.values()) - sum(gas.get(pk, 0) for pk in own)
    # Rounded up: what isn't used up yet is enough for one more.
    return max(min(more, -(-more_gas // MAX_GAS)), 0 if own else 1)
