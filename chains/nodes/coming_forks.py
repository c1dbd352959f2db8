"""Forks to come, as nodes tell them by `eth_config` (EIP-7910)."""

from dataclasses import dataclass
from typing import Any, Self

from chains.encoding import read_data, read_number, read_object

# The system contracts of Amsterdam: roots of beacon blocks (EIP-4788), hashes of blocks (EIP-2935), requests for
# withdrawals (EIP-7002) and consolidations (EIP-7251), and those of builders (EIP-8282). Then its precompiles.
_SYSTEM_CONTRACTS = frozenset(
    map(
        bytes.fromhex,
        (
            "000f3df6d732807ef1319fb7b8bb8522d0beac02",
            "0000f90827f1c53a10cb7a02335b175320002935",
            "00000961ef480eb55e80d19ad83579a64c007002",
            "0000bbddc7ce488642fb579f8b00f3a590007251",
            "0000bff46984e3725691fa540a8c7589300d8282",
            "000064d678505ad48f8ccb093bc65613800e8282",
        ),
    )
)
_PRECOMPILES = frozenset(number.to_bytes(20) for number in (*range(1, 0x12), 0x100))
# The contract of deposits has another address on each chain, or none.
_OF_DEPOSITS = "DEPOSIT_CONTRACT_ADDRESS"


@dataclass(frozen=True)
class ComingFork:
    at: int
    """The time from which its rules count, in seconds since 1970."""
    is_known: bool
    """True if this version knows its rules, which are Amsterdam's."""


def read(config: Any) -> ComingFork | None:
    """Read the next fork that changes more than blobs. None: the node knows of none. Raises `ValueError`."""
    config = read_object(config)
    current = _Rules.read(config.get("current"))
    # A fork that changes only blobs may come before another one.
    for told in (config.get("next"), config.get("last")):
        fork = current if told is None else _Rules.read(told)
        if fork.begins_at > current.begins_at and not fork.changes_only_blobs(current):
            return ComingFork(fork.begins_at, is_known=fork.is_amsterdams and not current.is_amsterdams)
    return None


@dataclass(frozen=True)
class _Rules:
    """The rules of a fork, as far as nodes tell them."""

    begins_at: int
    system_contracts: frozenset[bytes]
    precompiles: frozenset[bytes]
    blobs: Any

    @classmethod
    def read(cls, told: Any) -> Self:
        fork = read_object(told)
        contracts, precompiles = (read_object(fork.get(name)) for name in ("systemContracts", "precompiles"))
        others = (address for name, address in contracts.items() if name != _OF_DEPOSITS)
        return cls(
            read_number(fork.get("activationTime")),
            frozenset(read_data(address, 20) for address in others),
            frozenset(read_data(address, 20) for address in precompiles.values()),
            fork.get("blobSchedule"),
        )

    @property
    def is_amsterdams(self) -> bool:
        return (self.system_contracts, self.precompiles) == (_SYSTEM_CONTRACTS, _PRECOMPILES)

    def changes_only_blobs(self, before: Self) -> bool:
        is_alike = (self.system_contracts, self.precompiles) == (before.system_contracts, before.precompiles)
        return is_alike and self.blobs != before.blobs
