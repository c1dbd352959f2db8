"""How many transactions may wait to be mined, and how many of them a user's: nonces are mined in order, so that whoever
comes next waits for all that were sent before.

Each user may have as many as there is room left (a dynamic threshold: Choudhury and Hahne, "Dynamic Queue Length
Thresholds for Shared-Memory Packet Switches", 1998): one alone takes half of the room, the next half of the rest.
"""

from proving.models import Transaction, TransactionState
from queries.models import Block

# On one destination. About what nodes keep of one account, and more than a block takes of proofs.
_ROOM = 64


def left(block: Block, sender: str) -> int:
    """How many more may be sent for the user in whose turns the block is. Whoever has none may always send one."""
    pending = Transaction.objects.filter(
        signer__chain_id=block.destination_chain_id, signer__address=sender, state=TransactionState.PENDING
    )
    own = pending.filter(queries__block__turn_of=block.turn_of_id).distinct().count()
    free = _ROOM - pending.count()
    return max(free - own, 0 if own else 1)
