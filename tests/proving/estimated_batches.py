"""Batches of every kind, with their estimated and real gas."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.test import Client

from accounts.models import ApiKey
from devnet.devchain import DevChain
from proving.models import Transaction
from queries.models import BatchStatus
from tests.proving.logs import block_of, emitting
from tests.service import CHARLIE, fresh, header, submit, waiting, work

# The history contract of EIP-2935.
CONTRACT = "0x0000F90827F1C53a10cb7A02335B175320002935"


@dataclass(frozen=True)
class Result:
    """A batch's estimated and spent gas."""

    case: str
    expected: int
    bound: int
    spent: int

    @property
    def above(self) -> float:
        """Return the excess of the expected gas over the spent gas, as a fraction of the spent gas."""
        return self.expected / self.spent - 1

    def __str__(self) -> str:
        most = f"{self.bound / self.spent - 1:>+7.1%}"
        return f"{self.case:<58} {self.expected:>11,} {self.spent:>11,} {self.above:>+7.1%} {self.bound:>11,} {most}"


def accounts(count: int) -> dict[str, Any]:
    return {f"0x{number:040x}": {"props": ["BALANCE"]} for number in range(1000, 1000 + count)}


def cases_of(chain: DevChain) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the batches by name. Each uses other blocks."""
    numbers = iter(range(chain.head() - 2, 0, -1))

    def block() -> str:
        return f"block:{next(numbers)}"

    def time() -> str:
        shown = chain.rpc("eth_getBlockByNumber", hex(next(numbers)), False)
        return f"timestamp:{int(shown['timestamp'], 16)}"

    neighbours = [hex(slot) for slot in range(60)]
    alone = [hex(slot << 30) for slot in range(60)]
    full = [hex(slot) for slot in range(1, 11)]
    everything = {"props": ["BALANCE", "NONCE", "CODE_HASH", "STORAGE_ROOT"]}
    yield "1 balance", {block(): {"accounts": accounts(1)}}
    yield "10 balances", {block(): {"accounts": accounts(10)}}
    yield "100 balances", {block(): {"accounts": accounts(100)}}
    yield "300 balances", {block(): {"accounts": accounts(300)}}
    yield "all properties of a contract", {block(): {"accounts": {CONTRACT: everything}}}
    yield "10 slots", {block(): {"accounts": {CONTRACT: {"slots": full}}}}
    yield "60 empty slots beside each other", {block(): {"accounts": {CHARLIE: {"slots": neighbours}}}}
    yield "60 empty slots apart", {block(): {"accounts": {CHARLIE: {"slots": alone}}}}
    yield "a header property", {block(): {"header": ["TIMESTAMP"]}}
    yield "header properties that are zero", {block(): {"header": ["DIFFICULTY", "NONCE", "MIX_HASH", "GAS_USED"]}}
    yield "a time", {time(): {"accounts": accounts(1)}}
    yield "4 times", {time(): {"header": ["GAS_LIMIT"]} for _ in range(4)}
    yield "16 blocks", {block(): {"accounts": accounts(1)} for _ in range(16)}
    mixed = {block(): {"accounts": accounts(20), "header": ["GAS_LIMIT"]}, time(): {"accounts": accounts(2)}}
    yield "accounts, a header and a time", mixed
    yield from _cases_of_transactions(chain)


def _cases_of_transactions(chain: DevChain) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the batches about transactions by name. Each is at a block of its own."""
    token = emitting(32)
    for name, codes, transactions in (
        ("a log of 40 transactions", [token] * 40, {"7": {"logs": ["0"]}}),
        ("STATUS of 40 transactions", [token] * 40, {"39": {"props": ["STATUS"]}}),
        ("HASH of 40 transactions", [token] * 40, {"7": {"props": ["HASH"]}}),
        ("10 of 10 logs of a receipt", [emitting(*[32] * 10)] * 2, {"1": {"logs": [str(log) for log in range(10)]}}),
        ("40 transactions", [token] * 40, {str(index): {"props": ["STATUS"]} for index in range(40)}),
        ("a log and HASH", [token] * 3, {"1": {"logs": ["0"], "props": ["HASH"]}}),
    ):
        beside = {"accounts": accounts(10), "header": ["TIMESTAMP"]}
        for others, more in ((", accounts and a header", beside), ("", {})):
            yield f"{name}{others}", {f"block:{block_of(chain, codes)}": {"transactions": transactions, **more}}


def estimate(client: Client, api_key: ApiKey, body: dict[str, Any], *, status: int = 200) -> Any:
    answer = client.post("/estimate-batch-query", body, content_type="application/json", headers=header(api_key))
    assert answer.status_code == status, answer.content
    return answer.json()


def measured(
    client: Client,
    api_key: ApiKey,
    name: str,
    body: dict[str, Any],
    *,
    chain: DevChain | None = None,
    work: Callable[[], None] = work,
    estimates_high: bool = False,
) -> Result:
    """Estimate a batch and prove it. Return both results. If a `chain` is given, mine it between the rounds.

    With `estimates_high`, nodes' estimates are above the bound.
    """
    before = estimate(client, api_key, body)
    batch = submit(api_key, body)
    for _ in range(12):
        work()
        if fresh(batch).status == BatchStatus.DONE:
            break
        if chain:
            chain.mine()
    work()
    assert fresh(batch).status == BatchStatus.DONE, waiting()
    # Admission computes the same bound, which no signature exceeds but by nodes' word, where any fee is accepted.
    assert batch.estimated_gas == before["gas"]["bound"]
    signed = Transaction.objects.filter(queries__batch=batch).distinct()
    assert estimates_high or sum(tx.gas_limit for tx in signed) <= before["gas"]["bound"], name
    return Result(name, before["gas"]["expected"], before["gas"]["bound"], batch.gas_used)
