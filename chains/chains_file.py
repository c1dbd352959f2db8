"""The configured chains: `chains.toml`, and secrets from the environment or from files.

RPC URLs often hold secrets, as keys do. No `repr`, `str` or error message shows either.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from chains import cross_checks
from chains.configured_signers import RemoteSigner, SignerError, SignerKey
from chains.encoding import HISTORY_WINDOW, in_units
from chains.file_values import Address, RpcUrl, Table, file_path, host_of, is_http_url, rpc_url
from chains.prices import PRICES, RECORDS, GasPrices

if TYPE_CHECKING:
    from chains.beacon.jumps import BeaconChain

# Defaults in whole units of the native currency.
_DAILY_LIMIT, _DAILY_LIMIT_PER_USER = Decimal("0.5"), Decimal("0.1")
_MOST_GAS = 2**32 - 1


class ChainsError(ValueError):
    """The chains file can't be used. `faults` has a sentence for each fault and names its place in the file."""

    def __init__(self, path: Path, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join([f"{path} can't be used:", *(f"- {fault}" for fault in faults)]))


class UnknownChain(LookupError):
    """No chain of this id is configured."""

    def __init__(self, chain_id: int) -> None:
        self.chain_id = chain_id
        super().__init__(f"No chain with id {chain_id} is configured.")


# --- Values -----------------------------------------------------------------------------------------------------------


def _era_place(written: object, info: ValidationInfo) -> object:
    is_url = isinstance(written, str) and ("://" in written or written.startswith("${"))
    return rpc_url(str(written), info) if is_url else file_path(written, info)


def _none_twice(urls: tuple[str, ...]) -> tuple[str, ...]:
    # A node that is listed twice would count twice among the nodes that must agree before an attester signs.
    if len(set(urls)) < len(urls):
        raise ValueError("a node is listed twice")
    return urls


def _node_quorum(written: object, info: ValidationInfo) -> object:
    nodes = len(info.data.get("rpc_urls", ()))
    if nodes == 1 and written != 1:
        raise ValueError("must be 1, because there is one node")
    if nodes > 1 and not (type(written) is int and 2 <= written <= nodes):
        raise ValueError(
            f"must be a number from 2 to {nodes}, because {nodes} nodes: with 1, a lying node would decide alone "
            f"while the others are down"
        )
    return written


def _page_url(url: str) -> str:
    if not is_http_url(url):
        raise ValueError("must be an http or https URL")
    return url.rstrip("/")


def _amount(written: object) -> object:
    # The amount must be a string, because a TOML float may differ from the typed digits.
    if isinstance(written, Decimal):
        return written
    try:
        return Decimal(written if isinstance(written, str) else "")
    except InvalidOperation:
        raise ValueError("must be a decimal number in quotes") from None


def _wei(amount: Decimal) -> int:
    return int(amount * 10**18)


def _wei_of_gwei(amount: float) -> int:
    return int(Decimal(str(amount)) * 10**9)


def _confirmations(written: object) -> object:
    # pydantic's own check would report an error for each member of the union.
    if written != "finalized" and not (type(written) is int and written >= 1):
        raise ValueError('must be a number of blocks from 1, or "finalized"')
    return written


def _gas_prices(written: object) -> tuple[GasPrices, ...]:
    """Read the name of a record, or a table with single prices, and perhaps a record's name."""
    table = {"record": written} if isinstance(written, str) else written
    if not isinstance(table, dict):
        raise ValueError("must be the name of a record, or a table of prices")
    single = dict(table)
    name = single.pop("record", None)
    if name is not None and name not in RECORDS:
        raise ValueError(f"the known records are {' and '.join(RECORDS)}")
    if unknown := sorted(single.keys() - PRICES):
        raise ValueError(f"has no price {unknown[0]}; the prices are {', '.join(sorted(PRICES))}")
    for price, gas in single.items():
        if type(gas) is not int or not 0 <= gas <= _MOST_GAS:
            raise ValueError(f"{price} must be a whole number from 0 to {_MOST_GAS}")
    return tuple(replace(record, **single) for record in ([RECORDS[name]] if name else RECORDS.values()))


def _not_empty(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    # pydantic's own minimum length would also report an empty list if the only entry is invalid.
    if not entries:
        raise ValueError("at least one is needed")
    return entries


def _kind_of_signer(table: object) -> str:
    return "(url)" if isinstance(table, RemoteSigner) or (isinstance(table, dict) and "url" in table) else "(key)"


# Faults name the tags among the parts of their place, and `_faults` leaves those in parentheses out.
ConfiguredSigner = Annotated[
    Annotated[SignerKey, Tag("(key)")] | Annotated[RemoteSigner, Tag("(url)")], Discriminator(_kind_of_signer)
]
EraPlace = Annotated[str | Path, BeforeValidator(_era_place)]
PageUrl = Annotated[str, AfterValidator(_page_url)]
Root = Annotated[str, Field(pattern="^0x[0-9a-f]{64}$")]
Slot = Annotated[int, Field(ge=0, lt=2**64)]
Amount = Annotated[Decimal, BeforeValidator(_amount), Field(ge=0)]
Confirmations = Annotated[int | Literal["finalized"], BeforeValidator(_confirmations)]
NodeQuorum = Annotated[int | None, BeforeValidator(_node_quorum)]
NodeUrls = Annotated[tuple[RpcUrl, ...], AfterValidator(_none_twice), Field(strict=False, repr=False)]
Text = Annotated[str, Field(min_length=1, max_length=100)]
# Rows hold ids in 64 bits. EIP-2294 bounds them near that.
ChainId = Annotated[int, Field(ge=1, lt=2**63)]


# --- Tables of the file -----------------------------------------------------------------------------------------------


class BeaconChainTable(Table):
    """A chain's beacon chain, which proves old blocks. Each fork is given as its first slot."""

    preset: Literal["mainnet", "minimal"] = "mainnet"
    period_depth: Annotated[int, Field(ge=1, le=24)] | None = None
    """Binary logarithm of the number of slots whose roots a state keeps. None: as in the preset."""
    genesis_time: Annotated[int, Field(ge=0)]
    """The time of slot 0, in seconds since 1970."""
    slot_seconds: Annotated[int, Field(ge=1)] = 12
    bellatrix: Slot
    capella: Slot
    deneb: Slot
    electra: Slot
    gloas: Annotated[int, Field(ge=1, lt=2**64)] | None = None
    """None: the fork has no slot yet."""
    end: Slot = 2**64 - 1
    """The first slot whose block has an unknown layout."""
    historical_roots: Root = "0x" + "00" * 32
    """The root of the list of periods before Capella. Zero: blocks before Capella are not proven."""
    blocks_before_merge: Annotated[int, Field(ge=0, le=2**30)] = 0
    accumulator: Root = "0x" + "00" * 32
    """The root of the list of epochs of blocks before the Merge."""
    config_name: str = ""
    """The beginning of era files' names. Empty: the chain has no era files."""

    @model_validator(mode="after")
    def _forks_follow_each_other(self) -> Self:
        names = ("bellatrix", "capella", "deneb", "electra", "gloas", "end")
        forks = [(name, slot) for name in names if (slot := getattr(self, name)) is not None]
        for (earlier, first), (later, slot) in pairwise(forks):
            if slot < first:
                raise ValueError(f"{later} must not be before {earlier}: both are first slots of forks, and no epochs")
        return self

    def beacon_chain(self, chain_id: int) -> "BeaconChain":
        from chains.beacon import blocks, jumps  # noqa: PLC0415 (slow to load, and only chains with a beacon chain need it)

        is_minimal = self.preset == "minimal"
        fields = self.model_dump() | {
            "gloas": self.end if self.gloas is None else self.gloas,
            "period_depth": self.period_depth or (6 if is_minimal else 13),
            "historical_roots": bytes.fromhex(self.historical_roots[2:]),
            "accumulator": bytes.fromhex(self.accumulator[2:]),
            "preset": blocks.MINIMAL_PRESET if is_minimal else blocks.MAINNET_PRESET,
        }
        return jumps.BeaconChain(id=chain_id, **fields)


class Chain(Table):
    id: ChainId
    name: Text
    rpc_urls: Annotated[NodeUrls, AfterValidator(_not_empty)]
    native_currency: Text = "ETH"
    """The native currency's name. It has 18 decimals."""
    explorer_url: PageUrl | None = None
    confirmations: Confirmations = "finalized"
    """Blocks after which a transaction counts, its own included; or "finalized", by the chain's finality."""
    node_quorum: NodeQuorum = None
    """Number of nodes that must agree on a block before an attester signs it. None: more than half."""
    test_network: bool = False
    block_seconds: Annotated[float, Field(gt=0)] = 12
    """Usual time between blocks."""
    gather_seconds: Any = None
    """A field of 0.4.0 without effect: `accounts.checks` reports it."""
    history_window: Annotated[int, Field(ge=1, lt=2**63)] = HISTORY_WINDOW
    """Slots that the chain's history contract has (EIP-2935): 8,191 on Ethereum, 393,168 on Arbitrum."""
    gas_prices: Annotated[tuple[GasPrices, ...], BeforeValidator(_gas_prices)] = tuple(RECORDS.values())
    """The records of prices that the chain may have, in the order of the forks that begin them."""
    charges_gas_limit: bool = False
    """True if a transaction pays for its gas limit, whatever it uses."""
    beacon_chain_table: Annotated[BeaconChainTable | None, Field(alias="beacon_chain")] = None
    beacon_urls: NodeUrls = ()
    """URLs of beacon nodes, which serve the proofs of old blocks."""
    era_files: Annotated[tuple[EraPlace, ...], Field(strict=False, repr=False)] = ()
    """Paths or URLs of folders with era files."""
    max_fee_per_gas_gwei: Annotated[float, Field(gt=0)] = 200
    min_priority_fee_gwei: Annotated[float, Field(ge=0)] = 0
    minimum_signer_balance: Amount = Decimal("0.01")
    """In whole units of the native currency."""
    daily_limit: Amount | None = None
    """Maximum that the signers spend together in any 24 hours, for all users, in whole units."""
    daily_limit_per_user: Amount | None = None
    """Maximum that one user's batches may cost in any 24 hours, in whole units."""
    signer: ConfiguredSigner | None = None
    """The only signer. A chain has this or `signers`."""
    signers: Annotated[tuple[ConfiguredSigner, ...], AfterValidator(_not_empty), Field(strict=False)] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        return cross_checks.check(self, cross_checks.OF_CHAIN)

    @model_validator(mode="before")
    @classmethod
    def _limit_real_money(cls, written: object) -> object:
        """Set default limits of spending on a chain that isn't a test network."""
        if isinstance(written, dict) and not written.get("test_network"):
            return {"daily_limit": _DAILY_LIMIT, "daily_limit_per_user": _DAILY_LIMIT_PER_USER} | written
        return written

    @property
    def beacon_chain(self) -> "BeaconChain | None":
        """Return the beacon chain whose roots are in field 19 of this chain's headers. None if it isn't known."""
        own = self.beacon_chain_table.beacon_chain(self.id) if self.beacon_chain_table else None
        if self.id not in cross_checks.KNOWN_BEACON_CHAINS:
            return own
        from chains.beacon.jumps import KNOWN  # noqa: PLC0415 (slow to load, and only chains with a beacon chain need it)

        known = KNOWN[self.id]
        if own is None or any(known.historical_roots):
            return known
        # An operator may know the blocks before Capella.
        return replace(
            known,
            historical_roots=own.historical_roots,
            blocks_before_merge=own.blocks_before_merge,
            accumulator=own.accumulator,
        )

    @property
    def contradicts_known_beacon_chain(self) -> bool:
        """Return whether the table has other values than the service knows for this chain.

        A table for an earlier version has no `gloas`. Its `end` is open, or the first slot of Gloas.
        """
        if self.beacon_chain_table is None or self.id not in cross_checks.KNOWN_BEACON_CHAINS:
            return False
        known, own = self.beacon_chain, self.beacon_chain_table.beacon_chain(self.id)
        assert known is not None, "it is one of them"
        if not {own.gloas, own.end} <= {known.gloas, known.end}:
            return True
        return replace(own, gloas=known.gloas, end=known.end, config_name=known.config_name) != known

    @property
    def label(self) -> str:
        """Return the name and the id, for messages."""
        return f"{self.name} ({self.id})"

    @property
    def all_signers(self) -> tuple[SignerKey | RemoteSigner, ...]:
        """Return the signers in the file's order. If a chain has none, users send the transactions themselves."""
        return self.signers or (() if self.signer is None else (self.signer,))

    def signers_by_address(self) -> dict[str, SignerKey | RemoteSigner]:
        """Return the signers by address, in the file's order.

        Raises `SignerError` if a key can't be read, or if two signers have the same key.
        """
        by_address: dict[str, SignerKey | RemoteSigner] = {}
        for signer in self.all_signers:
            if signer.address in by_address:
                raise SignerError(f"Two signers of {self.label} have the same key, that of {signer.address}.")
            by_address[signer.address] = signer
        return by_address

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts of the RPC URLs, for messages: other parts of a URL may be secret."""
        return tuple(host_of(url) for url in self.rpc_urls)

    @property
    def beacon_hosts(self) -> tuple[str, ...]:
        """Return the hosts of the beacon nodes' URLs, for messages."""
        return tuple(host_of(url) for url in self.beacon_urls)

    @property
    def needed_nodes(self) -> int:
        """Return how many nodes must agree on a block before an attester signs it."""
        return self.node_quorum or len(self.rpc_urls) // 2 + 1

    @property
    def max_fee_per_gas(self) -> int:
        """Return the maximum fee that a signer pays, in wei per gas."""
        return _wei_of_gwei(self.max_fee_per_gas_gwei)

    @property
    def min_priority_fee(self) -> int:
        """Return the minimum priority fee that a signer offers, in wei per gas, even if nodes suggest less."""
        return _wei_of_gwei(self.min_priority_fee_gwei)

    @property
    def minimum_signer_balance_wei(self) -> int:
        return _wei(self.minimum_signer_balance)

    @property
    def daily_limit_wei(self) -> int | None:
        return None if self.daily_limit is None else _wei(self.daily_limit)

    @property
    def daily_limit_per_user_wei(self) -> int | None:
        return None if self.daily_limit_per_user is None else _wei(self.daily_limit_per_user)

    def cost(self, wei: int) -> str:
        """Write a cost in whole units, with the currency's name, for messages."""
        return f"{in_units(wei, is_cost=True)} {self.native_currency}"


class Attester(Table):
    """An attester: the account that signs block hashes, and the URL of its service."""

    address: Address
    url: Annotated[RpcUrl, Field(repr=False)]

    @property
    def host(self) -> str:
        """Return the URL's host, for messages: other parts of a URL may be secret."""
        return host_of(self.url)


class Ens(Table):
    """The chain whose contracts resolve ENS names."""

    chain_id: Annotated[ChainId, Field(alias="chain")]


BlockHashSourceName = Literal[
    "native", "attested", "op-stack", "op-stack-games", "beacon-roots", "arbitrum", "arbitrum-slot", "arbitrum-buffer"
]


class Connection(Table):
    """A pair of chains: facts of `source` can be proven to contracts on `destination`."""

    source_id: Annotated[ChainId, Field(alias="source")]
    destination_id: Annotated[ChainId, Field(alias="destination")]
    block_hash_source: BlockHashSourceName
    """The way in which the destination learns hashes of the source's blocks (docs/concepts/chains.md)."""
    window: Annotated[int, Field(ge=1)] = HISTORY_WINDOW
    """Blocks that the native source, and each hop, reaches back. Maximum: the source's `history_window`."""
    max_hops: Annotated[int, Field(ge=0, le=10_000)] = 50
    """Maximum number of hops to an older block."""
    attesters: Annotated[tuple[Attester, ...], Field(strict=False)] = ()
    threshold: Annotated[int, Field(ge=1)] | None = None
    """Number of attesters that must agree."""
    outbox: Address | None = None
    """The Arbitrum chain's Outbox, on its parent chain."""
    parent_id: Annotated[ChainId | None, Field(alias="parent")] = None
    """The chain with the Outbox. None: the destination."""
    anchor_state_registry: Address | None = None
    """The OP Stack chain's AnchorStateRegistry, on the chain below it."""
    known_implementations: Annotated[tuple[Address, ...], Field(strict=False)] = ()
    """Addresses of code that the Outbox, or the AnchorStateRegistry and its contracts, may run. Empty: any code."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        return cross_checks.check(self, cross_checks.OF_CONNECTION)


class Chains(Table):
    """The contents of the chains file."""

    chains: Annotated[tuple[Chain, ...], AfterValidator(_not_empty), Field(strict=False, validate_default=True)] = ()
    connections: Annotated[tuple[Connection, ...], Field(strict=False)] = ()
    attester: SignerKey | None = None
    """The key that this installation attests with. None: it is no attester."""
    ens: Ens | None = None
    """The chain for ENS names. None: names are not supported."""

    def chain(self, chain_id: int) -> Chain:
        """Return the chain with this id. Raises `UnknownChain`."""
        for chain in self.chains:
            if chain.id == chain_id:
                return chain
        raise UnknownChain(chain_id)

    def connection(self, source: int, destination: int) -> Connection | None:
        for connection in self.connections:
            if (connection.source_id, connection.destination_id) == (source, destination):
                return connection
        return None

    def destinations(self) -> tuple[Chain, ...]:
        """Return the chains to which facts can be proven."""
        ids = {connection.destination_id for connection in self.connections}
        return tuple(chain for chain in self.chains if chain.id in ids)

    def sources(self, destination: int) -> tuple[Chain, ...]:
        """Return the chains whose facts can be proven to `destination`."""
        ids = {connection.source_id for connection in self.connections if connection.destination_id == destination}
        return tuple(chain for chain in self.chains if chain.id in ids)


# --- Reading the file -------------------------------------------------------------------------------------------------


def load_chains(path: Path, environ: Mapping[str, str]) -> Chains:
    """Read and check the chains file.

    Raises `ChainsError` with all faults within tables. If there are none, it has all contradictions between tables.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ChainsError(path, [f"it can't be read: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ChainsError(path, [f"it is not TOML: {error}"]) from None
    try:
        chains = Chains.model_validate(content, context={"environ": environ, "folder": path.resolve().parent})
    except ValidationError as error:
        raise ChainsError(path, _faults(error)) from None
    if faults := cross_checks.faults(chains):
        raise ChainsError(path, faults)
    return chains


def chain_of_node(url: str, environ: Mapping[str, str]) -> Chain:
    """Return a chain that has only this node, and the id 1.

    `url` may hold variables, as in the file. Raises `ValueError` with one sentence.
    """
    table = {"id": 1, "name": "A chain", "rpc_urls": [url]}
    try:
        return Chain.model_validate(table, context={"environ": environ})
    except ValidationError as error:
        raise ValueError(f"The node's URL can't be used: {_faults(error)[0].partition(': ')[2]}.") from None


def _faults(error: ValidationError) -> list[str]:
    """Return a sentence for each fault, with its place in the file."""
    sentences: list[str] = []
    for fault in error.errors(include_input=False, include_url=False):
        place = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"] if str(part)[:1] != "("
        )
        of_type = {
            "model_type": "must be a table",
            "tuple_type": "must be a list; write its tables in double brackets, [[...]]",
            "extra_forbidden": "is not known here",
        }
        sentences.append(f"{place[1:]}: {of_type.get(fault['type'], fault['msg'].removeprefix('Value error, '))}")
    return sentences
