"""How much may wait to be mined, and how much of it of one user: a signer's nonces are mined in order, so that whoever
comes next waits for all that it has sent before.

Each user may have as much as is left free (a dynamic threshold: Choudhury and Hahne, "Dynamic Queue Length Thresholds
for Shared-Memory Packet Switches", 1998): one alone takes half of the room, the next half of the rest. Each signer of a
destination has room of its own.
"""

from collections.abc import Mapping

from chains.chains_file import Chain
from proving.models import Transaction, TransactionState
from proving.transactions import signers
from proving.transactions.intents import MAX_GAS
from proving.transactions.signers import Pending
from queries.models import Block

# Of one signer: transactions, about as many as nodes keep of one account, and gas, a few blocks' worth.
_TRANSACTIONS, _GAS = 64, 120_000_000


def left(chain: Chain, block: Block) -> int:
    """How many more transactions one of the chain's signers may send for the user in whose turns the block is.

    However much gas each has. Whoever has none under way may always send one.
    """
    pending = signers.pending(chain)
    room = left_by_signer(chain, block, pending)
    return max(room[address] for address in signers.free(chain, pending))


def left_by_signer(chain: Chain, block: Block, pending: Mapping[str, Pending]) -> dict[str, int]:
    """The same for each signer, by address."""
    own = Transaction.objects.filter(
        signer__chain_id=chain.id,
        signer__address__in=pending,
        state=TransactionState.PENDING,
        queries__block__turn_of=block.turn_of_id,
    )
    of_user = set(own.values_list("pk", flat=True))
    return {address: max(_room(one.gas, of_user), 0 if of_user else 1) for address, one in pending.items()}


def _room(gas: Mapping[int, int], of_user: set[int]) -> int:
    own = [gas[pk] for pk in gas if pk in of_user]
    more = _TRANSACTIONS - len(gas) - len(own)
    more_gas = _GAS - sum(gas.values()) - sum(own)
    # Rounded up: what isn't used up yet is enough for one more.
    return min(more, -(-more_gas // MAX_GAS))
