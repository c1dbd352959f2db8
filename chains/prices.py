"""Prices of the EVM in gas: a record for each set of rules. No other module has such a price.

Other modules count amounts of work, and price them last, for the chain on which a transaction runs.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from chains.tries.header import Header

# Gas of a byte of calldata, and of a zero byte (EIP-2028). A word of code that creates a contract (EIP-3860).
_BYTE, _ZERO_BYTE, _CREATION_WORD = 16, 4, 2
# Maximum gas of a transaction's execution (EIP-7825).
MAX_EXECUTION = 2**24
# Maximum gas limit of a transaction that a wallet sends: many know no other.
WALLET_GAS = MAX_EXECUTION
# A transaction's new words take this part of a block's gas limit at most. The maximum gas of its execution and state.
_STATE_PART, _MAX_WITH_STATE = 4, 30_000_000
# A contract that creates or calls another one keeps this part of its execution gas (EIP-150).
_KEPT_PART = 64
# The gas limit of a block, where it isn't known.
_USUAL_BLOCK = 60_000_000


@dataclass(frozen=True)
class Load:
    """Amounts of work of a transaction, or of a part of it."""

    size: float = 0
    """Bytes of calldata. A zero byte counts as a quarter of a byte."""
    execution: float = 0
    """Gas of all operations except the storing of new words. Forks hardly change it."""
    words: float = 0
    """Storage words that were zero before."""

    def __add__(self, other: Self) -> Self:
        return type(self)(self.size + other.size, self.execution + other.execution, self.words + other.words)

    def __mul__(self, times: float) -> Self:
        return type(self)(self.size * times, self.execution * times, self.words * times)


NO_LOAD = Load()


def gas_of_calldata(zeros: int, size: int) -> int:
    """Return the gas of `size` bytes of calldata, of which so many are zero, without execution."""
    return _ZERO_BYTE * zeros + _BYTE * (size - zeros)


@dataclass(frozen=True)
class GasPrices:
    """The gas prices of a chain.

    *State gas* is the gas of growing the state (EIP-8037). Limits count it apart from other gas.
    """

    name: str
    call: int
    """A transaction without value that calls another account (Yellow Paper, G_transaction; EIP-2780)."""
    transfer_to_self: int
    """A transaction to its own sender."""
    creation: int
    """A transaction that creates a contract, before its execution (EIP-2; EIP-2780)."""
    new_account: int
    """State gas of a new account, such as a created contract."""
    nested_creation: int
    """CREATE and CREATE2, without the new account (EIP-1014)."""
    word: int
    """Storing a word that was zero, without its state gas (EIP-2929; EIP-8038)."""
    word_state: int
    """State gas of such a word."""
    code_word: int
    """Storing 32 bytes of code, without their state gas."""
    code_byte_state: int
    """State gas of a byte of code (Yellow Paper, G_codedeposit, which is no state gas; EIP-8037)."""
    floor_byte: int
    """The minimum for a byte of calldata that isn't zero, where execution takes little (EIP-7623; EIP-7976)."""
    floor_zero_byte: int
    most_gas: int
    """The maximum gas limit of a transaction, whatever the block's limit."""
    block_gas: int = 0
    """The gas limit of the chain's newest block. 0: it isn't known, or the chain has none."""
    scale: float = 1
    """The gas that the chain charges, as measured, over these prices. 1: they agree, or nobody has measured yet."""

    @property
    def are_charged(self) -> bool:
        """Return whether the chain charges these prices, as far as anybody has measured."""
        return self.scale == 1

    @property
    def new_word(self) -> int:
        """Return the gas of storing a word that was zero."""
        return self.word + self.word_state

    def execution_of(self, load: Load) -> float:
        """Return the gas of executing the load, without its calldata."""
        return load.execution + load.words * self.new_word

    def gas_of(self, load: Load) -> float:
        """Return the gas of the load, without the transaction's own."""
        return max(load.size * self.floor_byte, load.size * _BYTE + self.execution_of(load))

    def creation_limit(self, deployer: str, data: bytes, size: int) -> int:
        """Return the lowest gas limit with which a deployer that gets `data` can create `size` bytes of code.

        A constructor takes more.
        """
        whole, of_code = self.creation_gas(deployer, data, size), self.code_of(size)
        return whole + max(0, min(whole, MAX_EXECUTION) - whole + of_code) // _KEPT_PART

    def creation_gas(self, deployer: str, data: bytes, size: int) -> int:
        """Return the least gas that the creation takes. Some nodes estimate it, and no limit that suffices for it."""
        before = self.before_execution(deployer, data) + self.nested_creation + self.new_account
        return before + self.code_of(size)

    def code_of(self, size: int) -> int:
        """Return the gas of storing this number of bytes of code."""
        return self.code_word * -(-size // 32) + self.code_byte_state * size

    def before_execution(self, to: str | None, data: bytes) -> int:
        """Return the gas that a transaction takes before its execution. Without `to`, `data` creates a contract.

        A transaction without data counts as one to its sender.
        """
        of_data = gas_of_calldata(data.count(0), len(data))
        if not to:
            return self.creation + of_data + _CREATION_WORD * -(-len(data) // 32)
        return (self.call if data else self.transfer_to_self) + of_data

    def least_limit(self, to: str | None, data: bytes) -> int:
        """Return the gas limit below which a chain refuses the transaction. Chains without a floor accept less."""
        zeros = data.count(0)
        floor = self.floor_zero_byte * zeros + self.floor_byte * (len(data) - zeros)
        base = self.transfer_to_self if to and not data else self.call
        return max(self.before_execution(to, data), base + floor)

    def gas_of_call(self, data: bytes, execution: int) -> int:
        """Return the gas of a transaction that calls a contract with this data."""
        return max(self.least_limit("any", data), self.before_execution("any", data) + execution)

    @property
    def max_gas(self) -> int:
        """Return the maximum gas limit of a transaction in the next block."""
        return min(self.most_gas, self.block_gas or self.most_gas)

    @property
    def of_wallets(self) -> Self:
        """Return the same prices, with the limit of transactions that wallets send."""
        return replace(self, most_gas=WALLET_GAS)

    def with_state(self, execution: int) -> int:
        """Return the maximum gas of execution and state, where a transaction may have this `execution`."""
        return _MAX_WITH_STATE if self.most_gas > MAX_EXECUTION else execution

    def fits(self, load: Load, execution: int) -> bool:
        """Return whether a transaction may have this load, without its calldata, where it may have this `execution`.

        Its new words leave room for others in a block, whose limit counts state gas apart. Where a transaction's limit
        doesn't, they count as execution.
        """
        return self._part(load, execution) <= 1

    def transactions_for(self, load: Load, execution: int) -> int:
        """Return the number of transactions that share this load, as in `fits`."""
        return max(1, math.ceil(self._part(load, execution)))

    def _part(self, load: Load, execution: int) -> float:
        """Return which part of the most that a transaction may have this load is."""
        return max(
            (load.execution + load.words * self.word) / execution,
            load.words * self.word_state * _STATE_PART / (self.block_gas or _USUAL_BLOCK),
            self.execution_of(load) / self.with_state(execution),
        )


OSAKA = GasPrices(
    name="osaka",
    call=21_000,
    transfer_to_self=21_000,
    creation=53_000,
    new_account=0,
    nested_creation=32_000,
    word=22_100,
    word_state=0,
    code_word=0,
    code_byte_state=200,
    floor_byte=40,
    floor_zero_byte=10,
    most_gas=MAX_EXECUTION,
)
AMSTERDAM = GasPrices(
    name="amsterdam",
    call=15_000,
    transfer_to_self=12_000,
    creation=24_000,
    new_account=183_600,
    nested_creation=12_000,
    word=12_100,
    word_state=97_920,
    code_word=6,
    code_byte_state=1_530,
    floor_byte=64,
    floor_zero_byte=64,
    most_gas=2**32 - 1,
)
TRANSFER_LIMIT = OSAKA.transfer_to_self
"""A gas limit that suffices for a transaction to its own sender under each record."""
RECORDS = {record.name: record for record in (OSAKA, AMSTERDAM)}
PRICES = frozenset(price.name for price in fields(GasPrices)) - {"name", "block_gas", "scale"}
"""The names of single prices."""


def prices_at(head: "Header") -> GasPrices:
    """Return the record of Ethereum's chains with this newest block."""
    return AMSTERDAM if head.is_amsterdams else OSAKA
