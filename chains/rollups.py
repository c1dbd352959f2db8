"""Costs of a transaction's data on a rollup, in addition to the gas of its execution.

The OP Stack charges wei besides the gas: the L1 data fee, and since Isthmus the operator fee
(https://specs.optimism.io/protocol/predeploys.html#gaspriceoracle). Arbitrum charges gas, which a node's estimate and a
receipt include (https://docs.arbitrum.io/how-arbitrum-works/gas-fees). The chain's predeploys show which rollup it is.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from eth_abi.abi import decode, encode
from eth_utils.abi import function_signature_to_4byte_selector

from chains.nodes import questions
from chains.nodes.node_errors import InvalidReply, Reverted, RpcRefused
from chains.nodes.questions import Receipt
from chains.nodes.rpc import TIMES_USUAL, RpcClient

# Addresses of a predeploy on every OP Stack chain, and of a precompile on every Arbitrum chain.
GAS_PRICE_ORACLE = "0x420000000000000000000000000000000000000F"
ARB_GAS_INFO = "0x000000000000000000000000000000000000006C"
# Arbitrum's nodes answer calls to this address, although no contract is deployed there.
NODE_INTERFACE = "0x00000000000000000000000000000000000000C8"

# Margin for the rise of the data fee until the transaction is mined, because a signature can't limit that fee. L1's
# base fee doubles within six full blocks.
_MARGIN = 2
# Bytes of a transaction's fields and signature, besides its calldata.
_ENVELOPE = 200
# Maximum bytes of calldata in a transaction. Nodes accept no transaction above 128 KiB.
_MOST_DATA = 110_000
# Compression can't shorten this sample, so its cost is an upper bound.
_SAMPLE = bytes((offset * offset * 31 + offset * 7 + (offset >> 3)) & 0xFF for offset in range(2048))


@dataclass(frozen=True)
class DataCost:
    """An upper bound of the present cost of publishing data."""

    gas: int = 0
    wei: int = 0
    """Fee besides the gas."""
    operator_wei: int = 0
    """The part of `wei` that goes by gas, and not by data: the operator fee."""


def data_cost(rpc: RpcClient, size: int, gas: int) -> DataCost:
    """Return the cost of `size` bytes of calldata and this much gas, in as many transactions as they need.

    Zero if the chain is no rollup. Raises `NodeUnavailable`, `RpcRefused`.
    """
    return data_costs(rpc, [(size, gas)])[0]


def data_costs(rpc: RpcClient, transactions: Sequence[tuple[int, int]]) -> list[DataCost]:
    """Return the `data_cost` of each pair of size and gas, in order. All are read in one exchange."""
    if not any(size for size, _ in transactions):
        return [DataCost()] * len(transactions)
    is_op_stack, is_arbitrum = _predeploys(rpc)
    try:
        if is_op_stack:
            return _op_stack_fees(rpc, transactions)
        if is_arbitrum:
            gas = _MARGIN * _arbitrum_gas(rpc)
            return [DataCost(gas=gas * (size + _ENVELOPE) // len(_SAMPLE) if size else 0) for size, _ in transactions]
    except (InvalidReply, RpcRefused):
        _known.pop(rpc, None)  # A node may have invented the predeploy.
        raise
    return [DataCost()] * len(transactions)


def charges_gas_for_data(rpc: RpcClient) -> bool:
    """Return whether an estimate of gas includes the cost of data, which has no bound."""
    _, is_arbitrum = _predeploys(rpc)
    return is_arbitrum


def without_margin(cost: DataCost, of_size: float, of_gas: float) -> DataCost:
    """Return the expected cost. `cost` is an upper bound.

    `of_size` and `of_gas` are the expected parts of the bytes of data, and of the gas, that the bound is for.
    """
    operator_wei = int(cost.operator_wei * of_gas)
    data_wei = int((cost.wei - cost.operator_wei) * of_size / _MARGIN)
    return DataCost(int(cost.gas * of_size / _MARGIN), data_wei + operator_wei, operator_wei)


def paid_beside_gas(rpc: RpcClient, receipt: Receipt) -> int | None:
    """Return the data fee plus the operator fee of a mined transaction, in wei. None if the node doesn't report them.

    The node must still have the state of the transaction's block. Raises `NodeUnavailable`.
    """
    if receipt.data_fee is None or not receipt.has_operator_fee:
        return receipt.data_fee
    # The formula differs between forks. The predeploy uses the formula of the transaction's block.
    call = _oracle("getOperatorFee(uint256)", ["uint256"], receipt.gas_used)
    try:
        return receipt.data_fee + _word(rpc.eth_call(*call, receipt.block_number))
    except (RpcRefused, InvalidReply):
        return None


# Seconds for which predeploys are remembered. They don't change, but a node may have told wrong ones.
_KNOWN_SECONDS = 600
_known: WeakKeyDictionary[RpcClient, tuple[float, list[bool]]] = WeakKeyDictionary()
"""When the predeploys were read, by `time.monotonic`, and whether each is there."""


def _predeploys(rpc: RpcClient) -> list[bool]:
    """Return whether the chain is of the OP Stack, and of Arbitrum, as nodes told lately."""
    read_at, are_there = _known.get(rpc, (-math.inf, []))
    if time.monotonic() - read_at > _KNOWN_SECONDS:
        codes = rpc.answers([questions.code(address) for address in (GAS_PRICE_ORACLE, ARB_GAS_INFO)])
        are_there = [bool(code) for code in codes]
        _known[rpc] = time.monotonic(), are_there
    return are_there


def _op_stack_fees(rpc: RpcClient, transactions: Sequence[tuple[int, int]]) -> list[DataCost]:
    """Return an upper bound of the data fee plus the operator fee of each transaction."""
    counts = [-(-size // _MOST_DATA) for size, _ in transactions]
    sizes = [size // count + _ENVELOPE if count else 0 for (size, _), count in zip(transactions, counts, strict=True)]
    calls = [_oracle("getL1FeeUpperBound(uint256)", ["uint256"], size) for size in sizes]
    calls += [
        _oracle("getOperatorFee(uint256)", ["uint256"], -(-gas // max(1, count)))
        for count, (_, gas) in zip(counts, transactions, strict=True)
    ]
    answers = _compared(rpc, calls, rpc.eth_calls(calls), sum(sizes))
    bounds, operators = answers[: len(transactions)], answers[len(transactions) :]
    costs: list[DataCost] = []
    for count, size, bound, operator in zip(counts, sizes, bounds, operators, strict=True):
        # Before Fjord the predeploy has no upper bound by size. Non-zero bytes cost most.
        of_bytes = _oracle("getL1Fee(bytes)", ["bytes"], b"\xff" * size)
        data_fee = _word(rpc.eth_call(*of_bytes) if isinstance(bound, Reverted) else bound)
        # Before Isthmus there is no operator fee.
        operator_fee = 0 if isinstance(operator, Reverted) else _word(operator)
        costs.append(DataCost(wei=count * (_MARGIN * data_fee + operator_fee), operator_wei=count * operator_fee))
    return costs


_usual: WeakKeyDictionary[RpcClient, int] = WeakKeyDictionary()
"""The lowest fees that a client's nodes told when they were last compared, in wei per byte."""


def _compared(
    rpc: RpcClient, calls: Sequence[tuple[str, bytes]], answers: Sequence[bytes | Reverted], size: int
) -> Sequence[bytes | Reverted]:
    """Return the answers, or another node's with the lowest fees, if those are far below, for `size` bytes of data."""
    if _total(answers) <= TIMES_USUAL * _usual.get(rpc, 0) * size:
        return answers
    told = [
        [
            answer
            for answer in of_node
            if isinstance(answer, Reverted) or (isinstance(answer, bytes) and len(answer) == 32)
        ]
        for of_node in rpc.ask_each([questions.call(*call) for call in calls]).values()
    ]
    lowest = min((of_node for of_node in told if len(of_node) == len(calls)), key=_total, default=answers)
    if len(told) > 1:
        _usual[rpc] = _total(lowest) // size
    return lowest if _total(answers) > TIMES_USUAL * _total(lowest) else answers


def _total(answers: Sequence[object]) -> int:
    """Return the sum of the fees among answers, in wei."""
    return sum(int.from_bytes(answer) for answer in answers if isinstance(answer, bytes))


def _arbitrum_gas(rpc: RpcClient) -> int:
    """Return the gas that Arbitrum charges for the sample."""
    selector = function_signature_to_4byte_selector("gasEstimateL1Component(address,bool,bytes)")
    arguments = encode(["address", "bool", "bytes"], [ARB_GAS_INFO, False, _SAMPLE])
    answer = rpc.eth_call(NODE_INTERFACE, selector + arguments)
    try:
        gas, _, _ = decode(["uint64", "uint256", "uint256"], answer)
    except Exception:  # noqa: BLE001 - the decoder raises many kinds of exceptions.
        raise InvalidReply(f"{rpc.chain.label} doesn't report the cost of data on its L1.") from None
    return int(gas)


def _oracle(signature: str, types: list[str], value: object) -> tuple[str, bytes]:
    return GAS_PRICE_ORACLE, function_signature_to_4byte_selector(signature) + encode(types, [value])


def _word(answer: bytes) -> int:
    if len(answer) != 32:
        raise InvalidReply("The GasPriceOracle of an OP Stack chain answered with something that is not a fee.")
    return int.from_bytes(answer)
