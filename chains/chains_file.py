"""The configured chains: `chains.toml` read strictly, with secrets taken from the environment or from files.

RPC URLs and keys often are secrets, so neither is ever part of a `repr`, a `str` or an error message here.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

from eth_account import Account
from eth_account.signers.local import LocalAccount
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from chains import history
from chains.beacon import jumps
from chains.beacon.blocks import MAINNET_PRESET, MINIMAL_PRESET
from chains.beacon.jumps import MAINNET, BeaconChain
from chains.encoding import checksummed

# A contract can check this many signatures in one transaction, with much room to spare.
MAX_ATTESTERS = 100

# The defaults, in whole units of the native currency.
_DAILY_LIMIT, _DAILY_LIMIT_PER_USER = Decimal("0.5"), Decimal("0.1")

_KEY = re.compile(r"(?:0x)?[0-9a-fA-F]{64}")
_ROOT = re.compile(r"0x[0-9a-f]{64}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class ChainsError(ValueError):
    """The chains' file is wrong. `faults` has one sentence for each fault, with its place."""

    def __init__(self, path: Path, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join([f"{path} can't be used:", *(f"- {fault}" for fault in faults)]))


class SignerError(Exception):
    """The signer's key can't be read; the message is one plain sentence that holds no secret."""


class UnknownChain(LookupError):
    """No chain of this id is configured."""

    def __init__(self, chain_id: int) -> None:
        self.chain_id = chain_id
        super().__init__(f"No chain with id {chain_id} is configured.")


# --- Values -----------------------------------------------------------------------------------------------------------


def _variable(name: str, environ: Mapping[str, str]) -> str:
    """Return the value of `NAME`, else of the file that `NAME_FILE` names."""
    if value := environ.get(name):
        return value
    if path := environ.get(f"{name}_FILE"):
        try:
            value = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise ValueError(f"the file that {name}_FILE names can't be read") from None
        if not value:
            raise ValueError(f"the file that {name}_FILE names is empty")
        return value
    raise ValueError(f"neither {name} nor {name}_FILE is set in the environment")


def _address(written: str) -> str:
    address = checksummed(written)
    if address is None:
        raise ValueError(
            "must be 0x and 40 hexadecimal digits, with the right EIP-55 checksum if they are in mixed case"
        )
    return address


def _rpc_url(written: str, info: ValidationInfo) -> str:
    environ: Mapping[str, str] = (info.context or {}).get("environ", {})
    url = _VARIABLE.sub(lambda match: _variable(match[1], environ), written)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or re.search(r"\s|\$\{", url):
        raise ValueError("must be an http or https URL (it is not shown, since it may hold a key)")
    return url


def _era_place(written: object, info: ValidationInfo) -> object:
    is_url = isinstance(written, str) and ("://" in written or written.startswith("${"))
    return _rpc_url(str(written), info) if is_url else _file_path(written, info)


def _different_nodes(urls: tuple[str, ...]) -> tuple[str, ...]:
    # pydantic's own minimum length would also complain about a list whose only member is wrong.
    if not urls:
        raise ValueError("at least one is needed")
    return _none_twice(urls)


def _none_twice(urls: tuple[str, ...]) -> tuple[str, ...]:
    # An attester counts nodes, and would count a node that is listed twice as two.
    if len(set(urls)) < len(urls):
        raise ValueError("a node is listed twice")
    return urls


def _node_quorum(written: object, info: ValidationInfo) -> object:
    nodes = len(info.data.get("rpc_urls", ()))
    if nodes == 1 and written != 1:
        raise ValueError("must be 1, because one node is named")
    if nodes > 1 and not (type(written) is int and 2 <= written <= nodes):
        raise ValueError(
            f"must be a number from 2 to {nodes}, because {nodes} nodes are named: with 1, a node that lies would "
            "decide alone while the others are down"
        )
    return written


def _page_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or re.search(r"\s", url):
        raise ValueError("must be an http or https URL")
    return url.rstrip("/")


def _file_path(written: object, info: ValidationInfo) -> object:
    folder: Path = (info.context or {}).get("folder", Path())
    return folder / Path(written).expanduser() if isinstance(written, str) and written else written


def _root(written: str) -> str:
    if not _ROOT.fullmatch(written):
        raise ValueError("must be 0x and 64 hexadecimal digits")
    return written


def _amount(written: object) -> object:
    # It must be a string, because a TOML float is not exactly what was typed.
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
    # One sentence for the whole union. pydantic would give one for each member.
    if written != "finalized" and not (type(written) is int and written >= 1):
        raise ValueError('must be a number of blocks from 1, or "finalized"')
    return written


def _signer_tables(written: object) -> object:
    if not isinstance(written, list | tuple):
        raise ValueError("must be written as [[chains.signers]]")
    return tuple(written)


def _different_keys(signers: "tuple[Signer, ...]") -> "tuple[Signer, ...]":
    if not signers:
        raise ValueError("at least one is needed")
    # Whether two ways lead to one key is only known when keys are read.
    if any(one in signers[:place] for place, one in enumerate(signers)):
        raise ValueError("a key is listed twice")
    return signers


def _environment_reference(written: str) -> str:
    if not _VARIABLE.fullmatch(written):
        raise ValueError('must be "${NAME}", so that the key itself is not in this file (it is not shown)')
    return written


def _key_bytes(written: str) -> bytes:
    """Return the key's 32 bytes; empty if it is not a key. eth_account would silently pad a key that lost a digit."""
    return bytes.fromhex(written.strip()[-64:]) if _KEY.fullmatch(written.strip()) else b""


def _host(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"{host}:{parts.port}" if parts.port else host


Address = Annotated[str, AfterValidator(_address)]
RpcUrl = Annotated[str, AfterValidator(_rpc_url)]
EraPlace = Annotated[str | Path, BeforeValidator(_era_place)]
PageUrl = Annotated[str, AfterValidator(_page_url)]
FilePath = Annotated[Path, BeforeValidator(_file_path)]
Root = Annotated[str, AfterValidator(_root)]
Slot = Annotated[int, Field(ge=0, lt=2**64)]
Amount = Annotated[Decimal, BeforeValidator(_amount), Field(ge=0)]
Reference = Annotated[str, AfterValidator(_environment_reference)]
Confirmations = Annotated[int | Literal["finalized"], BeforeValidator(_confirmations)]
NodeQuorum = Annotated[int | None, BeforeValidator(_node_quorum)]
SignerTables = Annotated[tuple["Signer", ...], BeforeValidator(_signer_tables), AfterValidator(_different_keys)]
Text = Annotated[str, Field(min_length=1, max_length=100)]
ChainId = Annotated[int, Field(ge=1, lt=2**256)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


_Table = TypeVar("_Table", bound=_Model)


# --- What the file holds ----------------------------------------------------------------------------------------------


class Signer(_Model):
    """The place of a signer's key: an encrypted keystore with a password, a key file, or a variable.

    Nothing is read before `account()`, so a process that signs nothing needs no key.
    """

    keystore_file: FilePath | None = Field(default=None, repr=False)
    password_file: FilePath | None = Field(default=None, repr=False)
    key_file: FilePath | None = Field(default=None, repr=False)
    key: Reference | None = Field(default=None, repr=False)

    _environ: Mapping[str, str] = PrivateAttr(default_factory=dict)
    _account: LocalAccount | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _one_way(self, info: ValidationInfo) -> Self:
        given = {name for name in type(self).model_fields if getattr(self, name) is not None}
        if given not in ({"keystore_file", "password_file"}, {"key_file"}, {"key"}):
            raise ValueError("must have keystore_file and password_file, or key_file alone, or key alone")
        self._environ = (info.context or {}).get("environ", {})
        return self

    def account(self) -> LocalAccount:
        """Return the signer's account, read once. Raises `SignerError`."""
        if self._account is None:
            self._account = self._read_account()
        return self._account

    def _read_account(self) -> LocalAccount:
        if self.keystore_file is not None and self.password_file is not None:
            keystore, password = _read(self.keystore_file), _read(self.password_file).rstrip("\r\n")
            try:
                key: Any = Account.decrypt(json.loads(keystore), password)
            except Exception:  # noqa: BLE001 - whatever is wrong, the message may quote the file.
                raise SignerError(
                    f"The signer's keystore {self.keystore_file} can't be decrypted with its password."
                ) from None
            where = str(self.keystore_file)
        elif self.key_file is not None:
            key, where = _key_bytes(_read(self.key_file)), str(self.key_file)
        else:
            assert self.key is not None
            name = self.key[2:-1]
            try:
                key, where = _key_bytes(_variable(name, self._environ)), name
            except ValueError as error:
                raise SignerError(f"The signer's key is missing: {error}.") from None
        try:
            account: LocalAccount = Account.from_key(key)
        except Exception:  # noqa: BLE001 - the message of eth_account may quote the key.
            raise SignerError(f"The signer's key in {where} is not a private key of 32 bytes in hex.") from None
        return account


class BeaconChainTable(_Model):
    """A chain's beacon chain, by which old blocks are proven. Forks are told by their first slots."""

    preset: Literal["mainnet", "minimal"] = "mainnet"
    period_depth: Annotated[int, Field(ge=1, le=jumps.HISTORY_DEPTH)] | None = None
    """A state keeps the roots of the last 2 to this power slots. None: as in the preset."""
    genesis_time: Annotated[int, Field(ge=0)]
    """The time of slot 0, in seconds since 1970."""
    slot_seconds: Annotated[int, Field(ge=1)] = 12
    bellatrix: Slot
    capella: Slot
    deneb: Slot
    electra: Slot
    end: Slot = 2**64 - 1
    """The first slot of a fork whose blocks have another layout."""
    historical_roots: Root = "0x" + "00" * 32
    """The root of the list of periods before Capella. Zero: those blocks are not proven."""
    blocks_before_merge: Annotated[int, Field(ge=0, le=2**30)] = 0
    accumulator: Root = "0x" + "00" * 32
    """The root of the list of epochs of blocks before the Merge."""
    config_name: str = ""
    """The name that era files begin with; empty: there are none."""

    @model_validator(mode="after")
    def _forks_follow_each_other(self) -> Self:
        forks = [self.bellatrix, self.capella, self.deneb, self.electra, self.end]
        if forks != sorted(forks):
            raise ValueError("bellatrix, capella, deneb, electra and end must not fall: they are the slots of forks")
        return self

    def beacon_chain(self, chain_id: int) -> BeaconChain:
        is_minimal = self.preset == "minimal"
        return BeaconChain(
            id=chain_id,
            period_depth=self.period_depth or (6 if is_minimal else 13),
            bellatrix=self.bellatrix,
            capella=self.capella,
            deneb=self.deneb,
            electra=self.electra,
            end=self.end,
            historical_roots=bytes.fromhex(self.historical_roots[2:]),
            blocks_before_merge=self.blocks_before_merge,
            accumulator=bytes.fromhex(self.accumulator[2:]),
            genesis_time=self.genesis_time,
            slot_seconds=self.slot_seconds,
            preset=MINIMAL_PRESET if is_minimal else MAINNET_PRESET,
            config_name=self.config_name,
        )


class Chain(_Model):
    id: ChainId
    name: Text
    rpc_urls: Annotated[tuple[RpcUrl, ...], AfterValidator(_different_nodes), Field(strict=False, repr=False)]
    native_currency: Text = "ETH"
    """Name of the native currency. It has 18 decimals."""
    explorer_url: PageUrl | None = None
    confirmations: Confirmations = "finalized"
    """Number of blocks that make a transaction count, including its own; or the chain's own finality."""
    node_quorum: NodeQuorum = None
    """Number of nodes that must agree on a block before an attester signs it. None: more than half."""
    test_network: bool = False
    block_seconds: Annotated[float, Field(gt=0)] = 12
    """About how often a block comes."""
    gather_seconds: Annotated[float, Field(ge=0, le=600)] = 0
    """Seconds that a small transaction waits for others to share it with."""
    history_window: Annotated[int, Field(ge=1, lt=2**63)] = history.WINDOW
    """Slots that the chain's history contract has (EIP-2935): 8,191 on Ethereum, 393,168 on Arbitrum."""
    beacon_chain_table: Annotated[BeaconChainTable | None, Field(alias="beacon_chain")] = None
    beacon_urls: Annotated[tuple[RpcUrl, ...], AfterValidator(_none_twice), Field(strict=False, repr=False)] = ()
    """URLs of beacon nodes, which tell what old blocks are proven by."""
    era_files: Annotated[tuple[EraPlace, ...], Field(strict=False, repr=False)] = ()
    """Folders of era files, by paths or by URLs."""
    max_fee_per_gas_gwei: Annotated[float, Field(gt=0)] = 200
    min_priority_fee_gwei: Annotated[float, Field(ge=0)] = 0
    minimum_signer_balance: Amount = Decimal("0.01")
    """In whole units of the native currency."""
    daily_limit: Amount | None = None
    """In whole units: the most that the signers spend together in any 24 hours, for all users."""
    daily_limit_per_user: Amount | None = None
    """In whole units: the most of it that one user's batches cause."""
    signer: Signer | None = None
    """The only one. It is this or `signers`."""
    signers: SignerTables | None = None

    @model_validator(mode="after")
    def _names_signers_once(self) -> Self:
        if self.signer is not None and self.signers is not None:
            raise ValueError("must have [chains.signer] or [[chains.signers]], not both")
        return self

    @model_validator(mode="after")
    def _knows_mainnets_beacon_chain(self) -> Self:
        if self.id == MAINNET.id and self.beacon_chain_table is not None:
            raise ValueError("must have no [chains.beacon_chain]: that of Ethereum, chain 1, is known")
        return self

    @model_validator(mode="before")
    @classmethod
    def _limit_real_money(cls, written: object) -> object:
        """Set the default limits where proving costs real money, even if nobody wrote any."""
        if isinstance(written, dict) and not written.get("test_network"):
            return {"daily_limit": _DAILY_LIMIT, "daily_limit_per_user": _DAILY_LIMIT_PER_USER} | written
        return written

    @property
    def beacon_chain(self) -> BeaconChain | None:
        """Return the beacon chain whose roots are in field 19 of this chain's headers; None where none is known."""
        if self.id == MAINNET.id:
            return MAINNET
        return self.beacon_chain_table.beacon_chain(self.id) if self.beacon_chain_table else None

    @property
    def label(self) -> str:
        """Return the name and the id, for messages."""
        return f"{self.name} ({self.id})"

    @property
    def all_signers(self) -> tuple[Signer, ...]:
        """Return the signers in the file's order. At a destination without any, users send the transactions."""
        return self.signers or (() if self.signer is None else (self.signer,))

    def accounts(self) -> tuple[LocalAccount, ...]:
        """Return the accounts of the chain's signers, in the file's order.

        Raises `SignerError`, also where two are the same.
        """
        accounts = tuple(signer.account() for signer in self.all_signers)
        addresses = [account.address for account in accounts]
        for place, address in enumerate(addresses):
            if address in addresses[:place]:
                raise SignerError(f"Two signers of {self.label} have the same key, that of {address}.")
        return accounts

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the RPC URLs' hosts, for messages: the rest of a URL often is a secret."""
        return tuple(_host(url) for url in self.rpc_urls)

    @property
    def beacon_hosts(self) -> tuple[str, ...]:
        """Return the hosts of the beacon nodes, as `hosts`."""
        return tuple(_host(url) for url in self.beacon_urls)

    @property
    def needed_nodes(self) -> int:
        """Return how many nodes must agree on a block before an attester signs it."""
        return self.node_quorum or len(self.rpc_urls) // 2 + 1

    @property
    def max_fee_per_gas(self) -> int:
        """Return the maximum that a signer pays for a unit of gas, in wei."""
        return _wei_of_gwei(self.max_fee_per_gas_gwei)

    @property
    def min_priority_fee(self) -> int:
        """Return the lowest priority fee that a signer offers for a unit of gas, in wei, whatever nodes suggest."""
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

    def amount(self, wei: int) -> str:
        """Write an amount in whole units, with the currency's name, for messages."""
        return f"{wei / 10**18:.6f} {self.native_currency}"


class Attester(_Model):
    """An attester: the account that signs block hashes, and the URL of the service that is asked for them."""

    address: Address
    url: Annotated[RpcUrl, Field(repr=False)]

    @property
    def host(self) -> str:
        """Return the URL's host, for messages: the rest of a URL may be a secret."""
        return _host(self.url)


class Ens(_Model):
    """The chain that resolves ENS names."""

    chain_id: Annotated[ChainId, Field(alias="chain")]

    @model_validator(mode="before")
    @classmethod
    def _without_gateways(cls, table: Any) -> Any:
        if isinstance(table, dict) and "gateways" in table:
            raise ValueError("gateways is gone: names that gateways answer for are unsupported. Remove the line")
        return table


BlockHashSourceName = Literal[
    "native", "attested", "op-stack", "op-stack-games", "beacon-roots", "arbitrum", "arbitrum-slot", "arbitrum-buffer"
]


class Connection(_Model):
    """Facts of `source` can be proven to contracts on `destination`."""

    source_id: Annotated[ChainId, Field(alias="source")]
    destination_id: Annotated[ChainId, Field(alias="destination")]
    block_hash_source: BlockHashSourceName
    """The way in which the destination learns hashes of the source's blocks: it is the same chain, attesters sign
    them, it is an OP Stack or Arbitrum chain on top of the source, it holds the source's beacon roots, or the source is
    a rollup on top of it."""
    window: Annotated[int, Field(ge=1)] = history.WINDOW
    """Number of blocks that the native source, and each hop, reaches back; at most the source's `history_window`."""
    max_hops: Annotated[int, Field(ge=0, le=10_000)] = 50
    """The most hops that an older block is proven by."""
    keep_headers: bool = False
    """True if workers accumulate a header in every window, so that any later block is one hop away."""
    attesters: Annotated[tuple[Attester, ...], Field(strict=False)] = ()
    threshold: Annotated[int, Field(ge=1)] | None = None
    """Number of attesters that must agree."""
    outbox: Address | None = None
    """The Arbitrum chain's Outbox, on its parent chain."""
    parent_id: Annotated[ChainId | None, Field(alias="parent")] = None
    """The chain that the Outbox is on. None: the destination."""
    anchor_state_registry: Address | None = None
    """The OP Stack chain's AnchorStateRegistry, on the chain below it."""
    known_implementations: Annotated[tuple[Address, ...], Field(strict=False)] = ()
    """Code that the Outbox, or the AnchorStateRegistry and what it relies on, may run. None: it isn't looked at."""

    @model_validator(mode="before")
    @classmethod
    def _without_what_is_gone(cls, table: Any) -> Any:
        for name in ("max_headers_walked", "always_jump"):
            if isinstance(table, dict) and name in table:
                raise ValueError(f"{name} is gone: old blocks are reached by jumps, else by hops. Remove the line")
        return table

    @model_validator(mode="after")
    def _has_what_its_source_needs(self) -> Self:
        if (self.outbox is not None) != (self.block_hash_source in {"arbitrum", "arbitrum-slot"}):
            raise ValueError("outbox belongs to block_hash_source arbitrum and arbitrum-slot, which need it")
        if (self.parent_id is not None) != (self.block_hash_source == "arbitrum-slot"):
            raise ValueError("parent belongs to block_hash_source arbitrum-slot, which needs it")
        has_games = self.block_hash_source == "op-stack-games"
        if (self.anchor_state_registry is not None) != has_games:
            raise ValueError("anchor_state_registry belongs to block_hash_source op-stack-games, which needs it")
        if self.known_implementations and not (has_games or self.outbox):
            raise ValueError("known_implementations belongs to block_hash_source arbitrum and op-stack-games")
        if self.block_hash_source != "attested":
            if self.attesters or self.threshold is not None:
                raise ValueError("attesters and threshold belong to block_hash_source attested")
            return self
        addresses = {attester.address for attester in self.attesters}
        if not addresses or len(self.attesters) > MAX_ATTESTERS:
            raise ValueError(f"block_hash_source attested needs 1 to {MAX_ATTESTERS} attesters")
        if len(addresses) < len(self.attesters):
            raise ValueError("an attester is listed twice")
        if self.threshold is None or self.threshold > len(addresses):
            raise ValueError("block_hash_source attested needs a threshold, at most the number of attesters")
        return self


@dataclass(frozen=True)
class Chains:
    chains: tuple[Chain, ...]
    connections: tuple[Connection, ...]
    attester: Signer | None = None
    """The key that this installation attests with, if it is an attester."""
    ens: Ens | None = None
    """None: names are not supported."""

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


# --- Reading it -------------------------------------------------------------------------------------------------------


def load_chains(path: Path, environ: Mapping[str, str]) -> Chains:
    """Read and check the chains' file. Raises `ChainsError`, which names every fault at once."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ChainsError(path, [f"it can't be read: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ChainsError(path, [f"it is not TOML: {error}"]) from None

    faults: list[str] = []
    context = {"environ": environ, "folder": path.resolve().parent}
    chains = _tables(Chain, "chains", content, context, faults)
    all_chains_read = not faults
    connections = _tables(Connection, "connections", content, context, faults)
    attester = _table(Signer, "attester", content.get("attester"), context, faults)
    ens = _table(Ens, "ens", content.get("ens"), context, faults)
    known = {"chains", "connections", "attester", "ens"}
    faults += [f"{key}: is not known here" for key in content if key not in known]
    faults += _contradictions(chains, connections, all_chains_read=all_chains_read)
    if ens and all_chains_read and ens.chain_id not in {chain.id for chain in chains.values()}:
        faults.append(f"ens.chain: no chain with id {ens.chain_id} is configured")
    if "attester" not in content:
        faults += [
            f"{place}.node_quorum: belongs to the file of an attester, which has a table [attester]"
            for place, chain in chains.items()
            if chain.node_quorum is not None
        ]
    if faults:
        raise ChainsError(path, faults)
    return Chains(tuple(chains.values()), tuple(connections.values()), attester, ens)


def chain_of_node(url: str, environ: Mapping[str, str]) -> Chain:
    """Return a chain of which this node alone is known, and not its id: it has the id 1.

    `url` may hold variables, as in the file. Raises `ValueError`, one sentence.
    """
    faults: list[str] = []
    table = {"id": 1, "name": "A chain", "rpc_urls": [url]}
    chain = _table(Chain, "", table, {"environ": environ}, faults)
    if chain is None:
        raise ValueError(f"The node's URL can't be used: {faults[0].partition(': ')[2]}.")
    return chain


def _tables(
    model: type[_Table], key: str, content: Mapping[str, Any], context: dict[str, Any], faults: list[str]
) -> dict[str, _Table]:
    """Return the valid tables of one kind by their place. Add the faults of the others to `faults`."""
    tables: dict[str, _Table] = {}
    written = content.get(key, [])
    if not isinstance(written, list):
        faults.append(f"{key}: must be written as [[{key}]]")
        written = []
    elif not written and model is Chain:
        faults.append(f"{key}: at least one is needed")
    for number, table in enumerate(written):
        place = f"{key}[{number}]"
        read = _table(model, place, table, context, faults)
        if read is not None:
            tables[place] = read
    return tables


def _table(
    model: type[_Table], place: str, written: object, context: dict[str, Any], faults: list[str]
) -> _Table | None:
    """Return the table at one place. None if there is none, or if it has faults, which are added to `faults`."""
    if written is None:
        return None
    try:
        return model.model_validate(written, context=context)
    except ValidationError as error:
        for fault in error.errors(include_input=False, include_url=False):
            inside = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"])
            no_table = fault["type"] == "model_type"
            said = "must be a table" if no_table else fault["msg"].removeprefix("Value error, ")
            faults.append(f"{place}{inside}: {said}")
        return None


# Kinds of block hash source whose source chain can't be the destination, with the chain that each needs there.
_OTHER_CHAIN: Mapping[BlockHashSourceName, str] = {
    "op-stack": "the chain below",
    "op-stack-games": "an OP Stack chain on top of the destination",
    "beacon-roots": "a chain whose beacon roots the destination holds",
    "arbitrum": "an Arbitrum chain on top of the destination",
    "arbitrum-buffer": "the parent chain",
}


def _rollup(connection: Connection) -> int | None:
    """Return the id of the chain that must be a rollup for the connection's block hash source; None: neither is."""
    match connection.block_hash_source:
        case "op-stack-games" | "arbitrum" | "arbitrum-slot":
            return connection.source_id
        case "op-stack" | "beacon-roots" | "arbitrum-buffer":
            return connection.destination_id
        case _:
            return None


def _wrong_ends(connection: Connection) -> list[str]:
    """Return what is wrong with the pair of chains, both of which are configured."""
    kind, is_same = connection.block_hash_source, connection.source_id == connection.destination_id
    if kind == "native" and not is_same:
        return ["block_hash_source native needs source and destination to be the same chain"]
    if kind in _OTHER_CHAIN and is_same:
        return [f"block_hash_source {kind} needs {_OTHER_CHAIN[kind]} as source"]
    if connection.parent_id in {connection.source_id, connection.destination_id}:
        return ["parent is neither source nor destination"]
    return []


def _contradictions(
    chains: Mapping[str, Chain], connections: Mapping[str, Connection], *, all_chains_read: bool
) -> list[str]:
    faults = []
    seen: set[int] = set()
    for place, chain in chains.items():
        if chain.id in seen:
            faults.append(f"{place}.id: {chain.id} is listed twice")
        seen.add(chain.id)
    pairs: set[tuple[int, int]] = set()
    for place, connection in connections.items():
        pair = (connection.source_id, connection.destination_id)
        if pair in pairs:
            faults.append(f"{place}: a connection from {pair[0]} to {pair[1]} is listed twice")
        pairs.add(pair)
        faults += [
            f"{place}.{end}: no chain with id {chain_id} is configured"
            for end, chain_id in zip(("source", "destination"), pair, strict=True)
            # A chain that could not be read may have this id. Its fault is reported already.
            if all_chains_read and chain_id not in seen
        ]
        if seen.issuperset(pair):
            faults += [f"{place}: {fault}" for fault in _wrong_ends(connection)]
    faults += [
        f"{place}.parent: no connection from {connection.parent_id} to {connection.destination_id} is configured"
        for place, connection in connections.items()
        if connection.parent_id and (connection.parent_id, connection.destination_id) not in pairs
    ]
    by_id = {chain.id: chain for chain in chains.values()}
    faults += [
        f"{place}: block_hash_source beacon-roots needs a known beacon chain and beacon_urls of chain {source.id}"
        for place, connection in connections.items()
        if connection.block_hash_source == "beacon-roots" and (source := by_id.get(connection.source_id))
        if source.id != connection.destination_id and (source.beacon_chain is None or not source.beacon_urls)
    ]
    rollups = {_rollup(connection): place for place, connection in connections.items()}
    faults += [
        f"{place}: chain {chain.id} is a rollup by {rollups[chain.id]}, so it has no beacon chain: by it "
        "facts of another chain would pass as its own"
        for place, chain in chains.items()
        if chain.id in rollups and chain.beacon_chain is not None
    ]
    parents = {(one.source_id, one.destination_id): one.parent_id for one in connections.values()}
    faults += [
        f"{place}.parent: its parents lead back to chain {connection.source_id}"
        for place, connection in connections.items()
        if _is_above_itself(connection, parents)
    ]
    windows = {chain.id: chain.history_window for chain in chains.values()}
    faults += [
        f"{place}.window: must be at most {windows[connection.source_id]}, the history_window of chain "
        f"{connection.source_id}"
        for place, connection in connections.items()
        if connection.window > windows.get(connection.source_id, connection.window)
    ]
    without_signer = {chain.id for chain in chains.values() if not chain.all_signers}
    faults += [
        f"{place}.keep_headers: chain {connection.destination_id} has no signer that could pay for it"
        for place, connection in connections.items()
        if connection.keep_headers and connection.destination_id in without_signer
    ]
    return faults


def _is_above_itself(connection: Connection, parents: Mapping[tuple[int, int], int | None]) -> bool:
    """Return whether the source chain is its own parent's parent, or further up. `parents` are by both ends."""
    above = connection.parent_id
    for _ in parents:
        above = None if above is None else parents.get((above, connection.destination_id))
        if above == connection.source_id:
            return True
    return False


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise SignerError(f"The signer's file {path} can't be read.") from None
