"""How much may wait to be mined, in all and of one user: a signer's nonces are mined in order, so that a user who
comes next waits for all that it has sent before.

Each user may have as much as is left free (a dynamic threshold: Choudhury and Hahne, "Dynamic Queue Length Thresholds
for Shared-Memory Packet Switches", 1998): one alone takes half of the room, the next half of the rest. Each signer of a
destination has room of its own.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chains.chains_file import Chain
from proving.models import Transaction, TransactionState
from proving.transactions import signers
from proving.transactions.signers import Pending
from queries.models import Block

# Of one signer: transactions, about as many as nodes keep of one account, and gas, a few blocks' worth.
_TRANSACTIONS, _GAS = 64, 120_000_000


@dataclass(frozen=True)
class Room:
    """The room that one signer has for more transactions of one user."""

    transactions: int
    gas: int
    has_none: bool
    """True if the user has nothing under way: then one may always be sent."""

    def fits(self, gas_limits: Sequence[int]) -> int:
        """Return how many of these transactions fit, the first ones. What isn't used up yet is enough for one more."""
        before = itertools.accumulate(gas_limits, initial=0)
        count = sum(1 for _, used in zip(gas_limits, before, strict=False) if used < self.gas)
        return max(min(self.transactions, count), 1 if self.has_none and gas_limits else 0)


def most(chain: Chain, blocks: Sequence[Block | None], pending: Mapping[str, Pending]) -> list[int]:
    """Return for each block how many more transactions one of the chain's signers may send, for the user in whose
    turns the block is; for none, as many as may be pending. How much gas they take is not known yet.
    """
    free = signers.free(chain, pending)
    by_user: dict[int | None, int] = {}
    for block in blocks:
        if block is not None and block.turn_of_id not in by_user:
            rooms = left_by_signer(chain, block, pending)
            by_user[block.turn_of_id] = max(rooms[address].fits([0] * _TRANSACTIONS) for address in free)
    return [_TRANSACTIONS if block is None else by_user[block.turn_of_id] for block in blocks]


def left_by_signer(chain: Chain, block: Block, pending: Mapping[str, Pending]) -> dict[str, Room]:
    """Return the room for that user, by a signer's address."""
    of_user: set[int] = set()
    if any(one.gas for one in pending.values()):
        own = Transaction.objects.filter(
            signer__chain_id=chain.id,
            signer__address__in=pending,
            state=TransactionState.PENDING,
            queries__block__turn_of=block.turn_of_id,
        )
        of_user.update(own.values_list("pk", flat=True))
    return {address: _room(one.gas, of_user) for address, one in pending.items()}


def _room(gas: Mapping[int, int], of_user: set[int]) -> Room:
    own = [gas[pk] for pk in gas if pk in of_user]
    return Room(_TRANSACTIONS - len(gas) - len(own), _GAS - sum(gas.values()) - sum(own), not of_user)
