"""What it costs to prove one account's balance at a new block, on each connection of a source chain.

It is estimated as a batch is (`proving.admission.feasibility`), for accounts that are in most states. So the page of
the chains says what the form of a new batch says.
"""

from collections.abc import Mapping
from functools import lru_cache

from chains import history
from chains.chains_file import Connection
from chains.header import Header
from chains.rpc import AccountProof, ChainError, Fees, ProofRequest, RpcClient
from config.configured_chains import get_chains, get_rpc
from proving import sources
from proving.admission import feasibility
from proving.facts import AccountFact
from proving.gas_model import proof_gas, trie_samples
from proving.gas_model.proof_gas import Estimate, Missing, Route, Tries
from queries.properties import AccountField

_ZERO = "0x" + "0" * 40
# Where they exist: EIP-2935 has put the first there, and somebody has sent something to the second on any public chain.
_SAMPLED = (history.CONTRACT, _ZERO)
# Of a price that is counted elsewhere.
_NO_FEES = Fees(0, 0)


@lru_cache(maxsize=256)
def without_sample(connection: Connection) -> int:
    """Return the expected gas on a chain as large as Ethereum, without what a rollup takes for data."""
    return _estimate(connection, Tries(), None).gas.expected


def sampled(rpc: RpcClient, head: Header) -> Mapping[str, Mapping[str, str]] | None:
    """Return the expected gas, and the wei that a rollup takes for data, by the id of the destination.

    A destination that does not answer is left out. None: no proof of an account was had. Raises `ChainError`.
    """
    wanted = [ProofRequest(head.number, head.hash, head.state_root, address) for address in _SAMPLED]
    there = [one for one in rpc.proofs(wanted) if isinstance(one, AccountProof) and one.account.exists]
    if not there:
        return None
    tries = trie_samples.read(there)
    found = {}
    for connection in get_chains().connections:
        if connection.source_id == rpc.chain.id:
            try:
                cost = feasibility.cost(
                    get_rpc(connection.destination_id), _estimate(connection, tries, head), _NO_FEES
                )
            except ChainError:
                continue
            found[str(connection.destination_id)] = {"gas": str(cost.gas.expected), "wei": str(cost.wei.expected)}
    return found


def _estimate(connection: Connection, tries: Tries, head: Header | None) -> Estimate:
    source = sources.of(connection)
    needs_start = source.vouched(connection, keeps_hashes=True) in {None, 1}
    route = Route(paths=1, start_gas=source.gas(connection)) if needs_start else Route()
    asked = Missing(0, [AccountFact(_ZERO, AccountField.BALANCE)], is_known=False, header=head)
    return proof_gas.estimate([asked], tries, route)
