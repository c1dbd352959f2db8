"""What a rollup charges for a transaction's data, which the gas of its execution doesn't include.

The OP Stack charges wei besides the gas: the L1 data fee, and since Isthmus the operator fee
(https://specs.optimism.io/protocol/predeploys.html#gaspriceoracle). Arbitrum takes gas, which an estimate by the node
and a receipt contain (https://docs.arbitrum.io/how-arbitrum-works/gas-fees). The chain itself tells which kind it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from eth_abi.abi import decode, encode
from eth_utils.abi import function_signature_to_4byte_selector

from chains import questions
from chains.questions import BlockIdentifier
from chains.rpc import ChainError, InvalidReply, Question, Receipt, Reverted, RpcClient, RpcRefused, result

# Predeploy of every OP Stack chain, and precompile of every Arbitrum chain.
GAS_PRICE_ORACLE = "0x420000000000000000000000000000000000000F"
ARB_GAS_INFO = "0x000000000000000000000000000000000000006C"
# It only answers calls; the chain has no such contract.
NODE_INTERFACE = "0x00000000000000000000000000000000000000C8"

# Unlike the price of gas, the data fee of a signed transaction has no cap, and it is that of the block that mines it.
# L1's base fee doubles within six full blocks.
_MARGIN = 2
# What a transaction's fields and signature take besides its calldata, in bytes.
_ENVELOPE = 200
# Nodes accept no transaction above 128 KiB, so longer data goes in several.
_MOST_DATA = 110_000
# For a sample that no compression shortens, so that what is bound by it stays below.
_SAMPLE = bytes((place * place * 31 + place * 7 + (place >> 3)) & 0xFF for place in range(2048))


@dataclass(frozen=True)
class DataCost:
    """The present cost of publishing data, as an upper bound."""

    gas: int = 0
    wei: int = 0
    """Besides the gas."""


def data_cost(rpc: RpcClient, size: int, gas: int) -> DataCost:
    """Return the data cost of `size` bytes of calldata and this much gas, in one transaction or as many as it takes.

    Zero on a chain that is not a rollup. Raises `NodeUnavailable`, `RpcRefused`.
    """
    return result(data_costs(rpc, [(size, gas)])[0])


def data_costs(rpc: RpcClient, wanted: Sequence[tuple[int, int]]) -> list[DataCost | ChainError]:
    """Return what `data_cost` does of each size and gas, in order and in one exchange, or why it isn't known."""
    if not any(size for size, _ in wanted):
        return [DataCost() for _ in wanted]
    try:
        is_op_stack, is_arbitrum = _kind(rpc)
        if is_op_stack:
            return _op_stack_fees(rpc, wanted)
        sample = _arbitrum_gas(rpc) if is_arbitrum else 0
    except ChainError as error:
        return [error for _ in wanted]
    return [DataCost(gas=_MARGIN * sample * (size + _ENVELOPE) // len(_SAMPLE) if size else 0) for size, _ in wanted]


def without_margin(cost: DataCost, size: int, most: int) -> DataCost:
    """Return the expected cost of `size` bytes of data. `cost` is the upper bound for `most` bytes."""
    part = size / most / _MARGIN if most else 0.0
    return DataCost(int(cost.gas * part), int(cost.wei * part))


def paid_beside_gas(rpc: RpcClient, receipt: Receipt) -> int | None:
    """Return the data fee and the operator fee of a mined transaction, in wei. None if the node doesn't tell.

    Asked while the node has the state of its block. Raises `NodeUnavailable`.
    """
    if receipt.data_fee is None or not receipt.has_operator_fee:
        return receipt.data_fee
    # How it is computed differs between forks, and the predeploy knows which one its block belongs to.
    question = _oracle("getOperatorFee(uint256)", ["uint256"], receipt.gas_used, receipt.block_number)
    try:
        return receipt.data_fee + _word(rpc.answer(question))
    except RpcRefused:
        return None


_kinds: WeakKeyDictionary[RpcClient, list[bool]] = WeakKeyDictionary()


def _kind(rpc: RpcClient) -> list[bool]:
    """Tell whether it is an OP Stack chain, or an Arbitrum chain. Predeploys don't change, so a node is asked once."""
    if rpc not in _kinds:
        codes = rpc.answers([questions.code(address) for address in (GAS_PRICE_ORACLE, ARB_GAS_INFO)])
        _kinds[rpc] = [bool(code) for code in codes]
    return _kinds[rpc]


def _op_stack_fees(rpc: RpcClient, wanted: Sequence[tuple[int, int]]) -> list[DataCost | ChainError]:
    """Return the data fee and the operator fee of transactions, as an upper bound."""
    counts = [-(-size // _MOST_DATA) for size, _ in wanted]
    sizes = [size // max(count, 1) + _ENVELOPE for (size, _), count in zip(wanted, counts, strict=True)]
    bounds, operators = rpc.ask(
        [_oracle("getL1FeeUpperBound(uint256)", ["uint256"], size) for size in sizes],
        [_oracle("getOperatorFee(uint256)", ["uint256"], gas) for _, gas in wanted],
    )
    # Before Fjord each byte counts by itself.
    older = [place for place, bound in enumerate(bounds) if isinstance(bound, Reverted)]
    fees = rpc.ask([_oracle("getL1Fee(bytes)", ["bytes"], b"\xff" * sizes[place]) for place in older])
    for place, fee in zip(older, fees, strict=True):
        bounds[place] = fee
    return [_op_stack_cost(*one) for one in zip(counts, bounds, operators, strict=True)]


def _op_stack_cost(count: int, bound: bytes | ChainError, operator: bytes | ChainError) -> DataCost | ChainError:
    if not count:
        return DataCost()
    try:
        # Before Isthmus there is no such fee.
        operator_fee = 0 if isinstance(operator, Reverted) else _word(result(operator))
        return DataCost(wei=count * (_MARGIN * _word(result(bound)) + operator_fee))
    except ChainError as error:
        return error


def _arbitrum_gas(rpc: RpcClient) -> int:
    """Return the gas that the data of `_SAMPLE` takes."""
    selector = function_signature_to_4byte_selector("gasEstimateL1Component(address,bool,bytes)")
    arguments = encode(["address", "bool", "bytes"], [ARB_GAS_INFO, False, _SAMPLE])
    answer = rpc.eth_call(NODE_INTERFACE, selector + arguments)
    try:
        gas, _, _ = decode(["uint64", "uint256", "uint256"], answer)
    except Exception:  # noqa: BLE001 - the decoder raises many kinds of exceptions.
        raise InvalidReply(f"{rpc.chain.label} doesn't tell what data costs on its L1.") from None
    return int(gas)


def _oracle(signature: str, types: list[str], value: object, block: BlockIdentifier = "latest") -> Question[bytes]:
    data = function_signature_to_4byte_selector(signature) + encode(types, [value])
    return questions.call(GAS_PRICE_ORACLE, data, block)


def _word(answer: bytes) -> int:
    if len(answer) != 32:
        raise InvalidReply("The GasPriceOracle of an OP Stack chain answered with something that is not a fee.")
    return int.from_bytes(answer)
