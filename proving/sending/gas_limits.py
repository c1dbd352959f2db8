"""The gas limit of a transaction, from nodes' estimates and from our own bound. Nothing else decides it.

If an estimate is far above the bound, it is false, or the chain charges other prices than those of its record. Other
nodes show which. One node alone is believed only up to a limit, and only while the money suffices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

from chains import rollups
from chains.nodes import questions
from chains.nodes.chain_nodes import Question
from chains.nodes.node_errors import ChainError, ImplausibleGas
from chains.nodes.questions import BlockIdentifier
from chains.nodes.rpc import RpcClient
from chains.prices import GasPrices
from proving.packing.packs import GAS_MARGIN, Intent
from queries.waits import WaitReason, wait

# Any estimate is believed up to this multiple of the bound.
_BELIEVED = 2
# If all are higher, the lowest is believed up to this multiple, or if two nodes differ at most by this factor.
_BELIEVED_ALONE, _AGREEING = 4, 1.1


@dataclass(frozen=True)
class GasNeed:
    """A transaction with our knowledge of its gas, and the questions to nodes about it."""

    questions: Sequence[Question[int]]
    """For estimates, one for each block on which it is simulated."""
    bound: int | None
    """An upper bound of its gas. None: any estimate is believed."""
    least: int
    """The least that it takes after the latest block."""
    least_limit: int
    """The gas limit below which a chain refuses it."""
    own_limit: Callable[[], int | None]
    """Return the gas limit without any node's help. None: there is none."""

    def at_most(self, limit: "GasLimit", answers: Sequence[Mapping[str, int | ChainError]]) -> "GasLimit":
        """Return the limit, lowered to the lowest of these estimates that the transaction can take, with a margin."""
        told = [answer for of_block in answers for answer in of_block.values() if isinstance(answer, int)]
        lowest = min((estimate for estimate in told if estimate >= self.least), default=limit.gas)
        most = max(int(lowest * GAS_MARGIN), self.least_limit)
        return replace(limit, gas=min(limit.gas, most), own=min(limit.own, most))

    def is_high(self, answer: int | ChainError) -> bool:
        """Return whether an estimate is so high that other nodes are asked."""
        return isinstance(answer, int) and self.bound is not None and answer > _BELIEVED * self.bound


@dataclass(frozen=True)
class GasLimit:
    """A gas limit, which has a margin above the gas that the transaction `takes`."""

    gas: int
    takes: int
    own: int = 0
    """The gas limit without any node's help, for batches whose money doesn't suffice for `gas`. 0: there is none."""

    @classmethod
    def of_own(cls, limit: int) -> Self:
        """Return a gas limit without any node's help."""
        return cls(limit, int(limit / GAS_MARGIN))

    @property
    def without_nodes(self) -> "GasLimit | None":
        return GasLimit.of_own(self.own) if self.own else None


def need_of(
    rpc: RpcClient,
    intent: Intent,
    sender: str,
    blocks: Sequence[BlockIdentifier],
    prices: GasPrices,
    *,
    own_limit: Callable[[], int | None],
) -> GasNeed:
    """Return an intent's need. It has no bound on a rollup that charges gas for data."""
    least, before = intent.least_gas(prices), prices.before_execution(intent.to, intent.data)
    return GasNeed(
        [
            # A pending transaction may write a part of the words.
            questions.gas_estimate(
                sender, intent.to or None, intent.data, block, least=before if block == "pending" else least
            )
            for block in blocks
        ],
        None if rollups.charges_gas_for_data(rpc) else intent.gas_bound(prices),
        least,
        prices.least_limit(intent.to, intent.data),
        own_limit,
    )


def decide(
    rpc: RpcClient, prices: GasPrices, needs: Sequence[GasNeed], answers: Sequence[Sequence[int | ChainError]]
) -> list[GasLimit | WaitReason | ChainError]:
    """Return the gas limit of each transaction, or why there is none.

    `answers` are those to the needs' questions. Where an estimate is high, or the chain charges the whole limit, each
    node is asked. Nodes whose estimates are not believed rest.
    """
    pays_limit = rpc.chain.charges_gas_limit

    def is_compared(need: GasNeed, answer: int | ChainError) -> bool:
        return need.is_high(answer) or (pays_limit and isinstance(answer, int))

    asked = [
        question
        for need, of_need in zip(needs, answers, strict=True)
        for question, answer in zip(need.questions, of_need, strict=True)
        if is_compared(need, answer)
    ]
    told = rpc.ask_each(asked) if asked else {}
    by_host = iter(
        [
            {host: estimates[place] for host, estimates in told.items() if isinstance(estimates[place], int)}
            for place in range(len(asked))
        ]
    )
    decided: list[GasLimit | WaitReason | ChainError] = []
    for need, of_need in zip(needs, answers, strict=True):
        # If there is only one node, or no other answers, the first answer counts.
        compared = [(is_compared(need, answer) and next(by_host)) or {"": answer} for answer in of_need]
        limit = _limit(rpc, prices, need, compared)
        decided.append(need.at_most(limit, compared) if pays_limit and isinstance(limit, GasLimit) else limit)
    return decided


def _limit(
    rpc: RpcClient, prices: GasPrices, need: GasNeed, compared: Sequence[Mapping[str, int | ChainError]]
) -> GasLimit | WaitReason | ChainError:
    believed: list[int] = []
    doubted: dict[str, int] = {}
    for answers in compared:
        estimates = {host: answer for host, answer in answers.items() if isinstance(answer, int)}
        high = {host: estimate for host, estimate in estimates.items() if need.is_high(estimate)}
        if usual := [estimate for host, estimate in estimates.items() if host not in high]:
            believed.append(usual[0])
            _let_rest(rpc, need, high)
        elif high and _is_believed(need, sorted(high.values())):
            believed.append(min(high.values()))
        else:
            doubted |= high
    takes = max(believed, default=0)
    most = prices.max_gas
    if takes >= need.least:
        limit = max(int(takes * GAS_MARGIN), need.least_limit)
        # Where the chain charges what we expect, one node's high estimate keeps no batch waiting for money or room.
        own = (need.own_limit() if need.is_high(takes) and prices.are_charged else None) or 0
        if limit <= most * GAS_MARGIN:
            return GasLimit(min(most, limit), max(takes, need.least_limit), own)
        return GasLimit.of_own(own) if own else wait("transaction_too_large", gas=takes, most=most)
    if doubted and not prices.are_charged:
        told = " and ".join(f"{gas:,}" for gas in sorted(set(doubted.values())))
        return wait("gas_doubted", chain=rpc.chain.id, estimates=told, bound=need.bound)
    errors = [answer for answers in compared for answer in answers.values() if isinstance(answer, ChainError)]
    is_false = believed or doubted or any(isinstance(error, ImplausibleGas) for error in errors)
    if is_false and (own := need.own_limit() or 0):
        _let_rest(rpc, need, doubted)
        return GasLimit.of_own(min(most, own))
    return errors[0] if errors else ImplausibleGas(f"A node's estimate of {takes} gas is less than this takes.")


def _is_believed(need: GasNeed, estimates: Sequence[int]) -> bool:
    """Return whether the lowest of these high estimates, which ascend, is believed."""
    do_agree = any(higher <= lower * _AGREEING for lower, higher in pairwise(estimates))
    return do_agree or need.bound is None or estimates[0] <= _BELIEVED_ALONE * need.bound


def _let_rest(rpc: RpcClient, need: GasNeed, estimates: Mapping[str, int]) -> None:
    for host, estimate in estimates.items():
        rpc.rest(host, f"{host} estimates {estimate} gas for a transaction that takes at most {need.bound}")
