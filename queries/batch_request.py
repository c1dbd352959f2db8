"""The body of `POST /submit-batch-query`: its schema, and a validation that finds all faults at once.

Source: docs/specification.md, "Batch query".
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice, pairwise, product, takewhile
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from django.db.models import IntegerChoices
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from chains import encoding
from chains.chains_file import Chains
from queries import labels, storage_layout, strict_json
from queries.columns import AccountField, EarlyCheck, EntryField, HeaderField, RejectionCode
from queries.ens_names import Account, Accounts, is_name, resolve_names
from queries.models import BlockTag, Query, QueryKind
from queries.strict_json import INVALID, UNSUPPORTED
from queries.strict_json import invalid as _invalid
from queries.strict_json import shortened as _shortened
from queries.strict_json import shown as _shown
from queries.strict_json import unsupported as _unsupported
from queries.waits import WaitReason
from queries.webhook_targets import WebhookRequest

# Maximum faults in an answer. After these, the rest of the body isn't validated.
MAX_FAULTS_LISTED = 1000
# Maximum JSON keys: per query, and all others. An account has 5 (its block, `accounts`, itself, `props` and `slots`). A
# named slot has up to 9, and up to 3 for each key.
_KEYS_PER_QUERY, _OTHER_KEYS = 15, 1000
# Limits of names. Normalizing a name takes half a millisecond per letter, and ten times as long per Han letter.
_MOST_NAMES = 50
_MOST_BYTES_OF_NAMES, _MOST_LETTERS_BEYOND_ASCII = 2000, 200
_MAX_BLOCK_NUMBER = (1 << 63) - 1
_TRANSACTION = re.compile(r"0x[0-9a-fA-F]{64}", re.ASCII)
# Greatest index of a transaction in its block that a registry takes, and of a log.
_MOST_TRANSACTIONS = (1 << 16) - 1
# Maximum blocks at which a batch names transactions, because all receipts of each are read before it is accepted.
_MOST_BLOCKS_OF_TRANSACTIONS = 25
_DECIMAL = re.compile(r"0|[1-9][0-9]*", re.ASCII)
# Clients recognize these faults by this text.
ADDRESS_FAULT = "Invalid account address or ENS"

# This fee means the estimated cost of the batch.
AUTO = "auto"
# The only valid value of `sender`.
_SELF = "self"


@dataclass(frozen=True)
class BodyFault:
    """A fault of the body. `path` is a JSON pointer (RFC 6901) to the wrong value."""

    path: str
    message: str
    code: str = INVALID
    is_of_name: bool = False  # the path's last name is wrong, and not the value
    reason: WaitReason | str = ""  # why a batch would be rejected; the message is its sentence


class InvalidRequest(ValueError):
    """The body is invalid. `faults` has at least one entry, and at most `MAX_FAULTS_LISTED`."""

    def __init__(self, faults: Iterable[BodyFault]) -> None:
        first_faults = list(islice(faults, MAX_FAULTS_LISTED + 1))
        self.has_more = len(first_faults) > MAX_FAULTS_LISTED
        self.faults = first_faults[:MAX_FAULTS_LISTED]
        super().__init__(self.faults[0].message)

    @property
    def code(self) -> str:
        """Return the code of the faults if all are unsupported, or all are reasons to reject a batch."""
        codes = {fault.code for fault in self.faults}
        return self.faults[0].code if codes == {UNSUPPORTED} or codes <= {*RejectionCode} else INVALID

    @property
    def sentence(self) -> str:
        more = f"{'more than ' if self.has_more else ''}{len(self.faults) - 1}"
        return self.faults[0].message + (f" ({more} more in details)" if len(self.faults) > 1 else "")


def _decimal(value: object, what: str, limit: int) -> int:
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        raise _invalid(f"{what} must be a decimal string without sign or leading zeros, not {_shown(value)}.")
    # The length is compared first, because converting a number of a million digits takes minutes.
    if len(value) > len(str(limit)) or int(value) > limit:
        raise _invalid(f"{what} is too large: {_shown(value)}.")
    return int(value)


@dataclass
class _Context:
    """The data that validation needs in addition to the body."""

    chains: Chains
    destination: int | None  # None: invalid, which is a separate fault
    accounts: Accounts  # the accounts of names
    fields: frozenset[str]  # names of the body's fields
    is_self_funded: bool
    needs_payer: bool  # False if nothing is sent for the request
    faults: Counter[str | None] = field(default_factory=Counter)  # by field that may have thousands of values


def _context(info: ValidationInfo) -> _Context:
    context = info.context
    assert isinstance(context, _Context)
    return context


def _counted(value: object, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
    """Validate a value of a field that may have thousands. Skip it if the field has too many faults already."""
    faults = _context(info).faults
    if faults[info.field_name] > MAX_FAULTS_LISTED:
        return value  # The body is refused anyway.
    try:
        return validate(value)
    except ValidationError:
        faults[info.field_name] += 1
        raise


def _is_destination(chains: Chains, chain_id: int) -> bool:
    return any(connection.destination_id == chain_id for connection in chains.connections)


def _destination(value: object, info: ValidationInfo) -> int:
    if isinstance(value, str) and value.startswith(("STARKNET", "SN_")):
        raise _unsupported("Starknet is not a destination here, but EVM chains are; see /chain-connections.")
    chain_id = _decimal(value, "A chain id", _MAX_BLOCK_NUMBER)
    if not _is_destination(_context(info).chains, chain_id):
        raise _invalid(f"Chain {chain_id} is not a destination here; see /chain-connections.")
    return chain_id


def _source(value: object, info: ValidationInfo) -> int:
    chain_id = _decimal(value, "A chain id", _MAX_BLOCK_NUMBER)
    chains, destination = _context(info).chains, _context(info).destination
    if not any(
        connection.source_id == chain_id and destination in {connection.destination_id, None}
        for connection in chains.connections
    ):
        where = "" if destination is None else f" on chain {destination}"
        raise _unsupported(f"Chain {chain_id} can't be proven{where} here; see /chain-connections.")
    return chain_id


@dataclass(frozen=True)
class Selector:
    """A block, selected by a number, a tag, a transaction in it, or a time.

    The block of a time (unix seconds) is the last that isn't later.
    """

    number: int | None = None
    timestamp: int | None = None
    tag: str = ""  # a `BlockTag`, or empty
    transaction: str = ""  # its hash (0x…, lower case), or empty

    @classmethod
    def of(cls, query: Query) -> Self:
        """Return the selector of a query that has its `block_number`, if the block is known."""
        if query.timestamp is not None:
            return cls(timestamp=query.timestamp)
        if query.block_number is not None:
            return cls(query.block_number)
        return cls(tag=query.block_tag, transaction=query.block_of)

    @property
    def text(self) -> str:
        """Return the selector as in requests."""
        if self.tag:
            return self.tag
        if self.transaction:
            return f"transaction:{self.transaction}"
        return f"block:{self.number}" if self.number is not None else f"timestamp:{self.timestamp}"


def _selector(value: object) -> Selector:
    text = value if isinstance(value, str) else ""
    if text in BlockTag.values:
        return Selector(tag=text)
    kind, _, number = text.partition(":")
    if kind == "timestamp":
        return Selector(timestamp=_decimal(number, "A timestamp, in seconds,", _MAX_BLOCK_NUMBER))
    if kind == "transaction" and _TRANSACTION.fullmatch(number):
        return Selector(transaction=number.lower())
    if kind != "block":
        raise _invalid(
            "A block is selected as block:<number>, timestamp:<seconds>, transaction:<hash>, latest or finalized, not "
            f"{_shown(value)}."
        )
    return Selector(number=_decimal(number, "A block number", _MAX_BLOCK_NUMBER))


def _account(value: object, info: ValidationInfo) -> Account:
    text = value if isinstance(value, str) else ""
    if is_name(text):
        return _account_of(text, _context(info))
    if not encoding.is_address(text):
        raise _invalid(f"{ADDRESS_FAULT}: {_shown(value)} {encoding.fault(text)}.")
    return Account(text)


def _account_of(name: str, context: _Context) -> Account:
    if context.chains.ens is None:
        raise _unsupported(f"{ADDRESS_FAULT}: this service resolves no names, so send the address of {_shown(name)}.")
    account = context.accounts.get(name, Account(""))  # unknown where the names exceed a limit
    if isinstance(account, Account):
        return account
    fault = _invalid if account.is_supported else _unsupported
    raise fault(f"{ADDRESS_FAULT}: the name {_shown(name)} {account.because}.")


def _fee(value: object, info: ValidationInfo) -> int | None:
    context = _context(info)
    if "fee" not in context.fields:
        if context.is_self_funded or not context.needs_payer:
            return 0
        raise PydanticCustomError("missing", "Field required")
    fee = None if value == AUTO else _decimal(value, "The fee, in wei,", (1 << 256) - 1)
    if fee != 0 and context.is_self_funded:
        raise _invalid("You pay for this batch yourself, so it has no fee: leave the fee out, or send 0.")
    return fee


def _sender(value: object, info: ValidationInfo) -> str | None:
    context = _context(info)
    if "sender" in context.fields:
        if value != _SELF:
            raise _invalid(f"The sender is {_SELF}, or is left out; it can't be {_shown(value)}.")
        return _SELF
    if (
        context.needs_payer
        and context.destination is not None
        and not context.chains.chain(context.destination).all_signers
    ):
        raise _unsupported(
            f"This service has no signer on chain {context.destination}, so it can't pay there. Add "
            f'"sender": "{_SELF}", and send the transactions yourself.'
        )
    return None


def _transaction(value: object) -> int | str:
    if isinstance(value, str) and _TRANSACTION.fullmatch(value):
        return value.lower()
    return _decimal(value, "Name a transaction by its hash, or by its index in the block, which", _MOST_TRANSACTIONS)


def _log(value: object) -> int:
    return _decimal(value, "The index of a log", _MOST_TRANSACTIONS)


def _withdrawal(value: object) -> int:
    return _decimal(value, "The place of a withdrawal in its block", _MOST_TRANSACTIONS)


def _only_shown(withdrawals: list[int], info: ValidationInfo) -> list[int]:
    if withdrawals and _context(info).needs_payer:
        raise _unsupported(
            "Registries store no withdrawals: get a proof from /read-proofs, and prove their header's WITHDRAWALS_ROOT."
        )
    return withdrawals


def _label(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, str) and (label := labels.valid(value)):
        return label
    raise _invalid(labels.FAULT)


_Counted = WrapValidator(_counted)

if TYPE_CHECKING:
    Property: TypeAlias = str
    TransactionProperty: TypeAlias = str
    HeaderName: TypeAlias = str
else:
    Property, TransactionProperty, HeaderName = (
        Annotated[Literal[tuple(fields.names)], _Counted] for fields in (AccountField, EntryField, HeaderField)
    )
# Patterns only for the API's description. The functions above check these types, and name faults in sentences.
DECIMAL = "^(0|[1-9][0-9]*)$"
TRANSACTION = "^(0|[1-9][0-9]*|0x[0-9a-fA-F]{64})$"
_DecimalText = Annotated[str, Field(pattern=DECIMAL)]
_SelectorText = Annotated[
    str, Field(pattern="^((block|timestamp):(0|[1-9][0-9]*)|transaction:0x[0-9a-fA-F]{64}|latest|finalized)$")
]
_AccountText = Annotated[str, Field(pattern=r"^(0x[0-9a-fA-F]{40}|.*\..*)$")]
_TransactionText = Annotated[str, Field(pattern=TRANSACTION)]
_FeeText = Annotated[str, Field(pattern="^(0|[1-9][0-9]*|auto)$")]

DestinationChainId = Annotated[
    int,
    BeforeValidator(_destination, json_schema_input_type=_DecimalText),
    Field(json_schema_extra={"examples": ["31337"]}),
]
SourceChainId = Annotated[int, BeforeValidator(_source, json_schema_input_type=_DecimalText), _Counted]
BlockSelector = Annotated[Selector, BeforeValidator(_selector, json_schema_input_type=_SelectorText), _Counted]
TransactionKey = Annotated[int | str, BeforeValidator(_transaction, json_schema_input_type=_TransactionText), _Counted]
LogIndex = Annotated[int, BeforeValidator(_log, json_schema_input_type=_DecimalText), _Counted]
WithdrawalPlace = Annotated[int, BeforeValidator(_withdrawal, json_schema_input_type=_DecimalText), _Counted]
Slot = Annotated[storage_layout.Slot, _Counted]
AccountKey = Annotated[Account, BeforeValidator(_account, json_schema_input_type=_AccountText), _Counted]
Label = Annotated[
    str | None,
    BeforeValidator(_label, json_schema_input_type=Annotated[str, Field(min_length=1, max_length=labels.MAX_CHARS)]),
]
Fee = Annotated[
    int | None,
    BeforeValidator(_fee, json_schema_input_type=_FeeText),
    Field(json_schema_extra={"examples": ["0", AUTO]}),
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class AccountRequest(_Strict):
    """The facts to prove of one account."""

    props: list[Property] = Field(default=[], max_length=16, description="Account properties to prove.")
    slots: list[Slot] = Field(default=[], description="Storage slots to prove, in hexadecimal, or by name.")

    @model_validator(mode="after")
    def _not_empty(self) -> "AccountRequest":
        if not self.props and not self.slots:
            raise _invalid("Nothing to prove: the account names neither a property nor a slot.")
        return self

    @property
    def names_by_slot(self) -> dict[str, Mapping[str, Any] | None]:
        """Return each slot once (0x and 64 digits), with the first name that the request has for it."""
        names: dict[str, Mapping[str, Any] | None] = {}
        for slot in self.slots:
            number, name = (slot, None) if isinstance(slot, str) else (slot.number, slot.name)
            names[number] = names.get(number) or name
        return names


class TransactionRequest(_Strict):
    """The properties and logs to prove of one transaction."""

    props: list[TransactionProperty] = Field(
        default=[], max_length=16, description="Properties of the receipt, and the transaction's HASH."
    )
    logs: list[LogIndex] = Field(default=[], description="Logs by their index in the receipt, decimal.")
    blockLogs: list[LogIndex] = Field(
        default=[], description="Logs by their index in the block, as `eth_getLogs` shows it, decimal."
    )

    @model_validator(mode="after")
    def _not_empty(self) -> "TransactionRequest":
        if not self.props and not self.logs and not self.blockLogs:
            raise _invalid("Nothing to prove: the transaction names neither a property nor a log.")
        return self


class BlockRequest(_Strict):
    """The facts to prove at one block."""

    accounts: dict[AccountKey, AccountRequest] = Field(default={}, description="By account address, or ENS name.")
    header: list[HeaderName] = Field(default=[], max_length=64, description="Header properties to prove.")
    transactions: dict[TransactionKey, TransactionRequest] = Field(
        default={}, description="By the transaction's hash, or its index in the block."
    )
    withdrawals: Annotated[list[WithdrawalPlace], AfterValidator(_only_shown)] = Field(
        default=[],
        description="Withdrawals by their place in the block, decimal. `/read-proofs` shows them; registries don't "
        "store them.",
    )

    @model_validator(mode="after")
    def _not_empty(self) -> "BlockRequest":
        if not self.accounts and not self.header and not self.transactions and not self.withdrawals:
            raise _invalid("Nothing to prove: the block names neither an account, a transaction nor a header property.")
        return self


class BatchRequest(_Strict):
    """A batch query (docs/specification.md, "Batch query")."""

    destinationChainId: DestinationChainId = Field(description="Chain where the facts become readable, decimal.")
    fee: Fee = Field(
        default_factory=int,
        validate_default=True,
        description="The batch's maximum cost in wei, decimal. 0 on test networks. `auto`: its estimate. "
        "Left out with a sender.",
    )
    sender: Annotated[str | None, BeforeValidator(_sender, json_schema_input_type=Literal["self"])] = Field(
        default=None,
        validate_default=True,
        description="`self`: you send the transactions, and pay for them. If left out, the service does.",
    )
    data: Annotated[
        dict[SourceChainId, Annotated[dict[BlockSelector, BlockRequest], Field(min_length=1)]], Field(min_length=1)
    ] = Field(
        description="By source chain id, then by `block:<number>`, `timestamp:<seconds>`, `transaction:<hash>`, "
        "`latest` or `finalized`."
    )
    webhook: WebhookRequest | None = Field(default=None, description="The receiver of the batch's events.")
    label: Label = Field(default=None, description="A name by which you find the batch. Others may see it.")

    @property
    def is_self_funded(self) -> bool:
        return self.sender is not None

    @cached_property
    def queries(self) -> list[Query]:
        """Return the queries of the request in order, unsaved."""
        queries: list[Query] = []
        for source, blocks in self.data.items():
            for selector, asked in blocks.items():
                # Copies take half the time of new objects.
                at_block = Query(source_chain_id=source, timestamp=selector.timestamp, block_tag=selector.tag)
                at_block.block_number, at_block.block_of = selector.number, selector.transaction
                for account, of_account in asked.accounts.items():
                    queries.append(query := copy(at_block))
                    slots = of_account.names_by_slot
                    query.kind, query.fields = QueryKind.ACCOUNT, _mask(AccountField, of_account.props)
                    query.slots = [*slots]
                    query.address, query.name = str(encoding.checksummed(account.address)), account.name
                    query.slot_names = {slot: name for slot, name in slots.items() if name}
                if asked.header:
                    queries.append(query := copy(at_block))
                    query.kind, query.fields = QueryKind.HEADER, _mask(HeaderField, asked.header)
                for entry, of_entry in asked.transactions.items():
                    queries.append(query := copy(at_block))
                    query.kind, query.fields = QueryKind.ENTRY, _mask(EntryField, of_entry.props)
                    query.transaction_name = str(entry)
                    query.transaction_index = entry if isinstance(entry, int) else None
                    query.logs, query.block_logs = of_entry.logs, of_entry.blockLogs
        for position, query in enumerate(queries):
            query.position = position
        return queries

    @property
    def withdrawals(self) -> Iterator[tuple[int, Selector, Sequence[int]]]:
        """Yield the places of withdrawals, which are no queries, with their source chain and block."""
        for source, blocks in self.data.items():
            for selector, asked in blocks.items():
                if asked.withdrawals:
                    yield source, selector, list(dict.fromkeys(asked.withdrawals))

    @property
    def size(self) -> int:
        """Return the number of accounts, slots, headers, transactions, logs and withdrawals, which limits count."""
        of_withdrawals = sum(len(places) for _, _, places in self.withdrawals)
        return sum(query.item_count for query in self.queries) + of_withdrawals


def _mask(fields: type[IntegerChoices], names: Iterable[str]) -> int:
    """Return the column `fields` of a query that asks for these properties."""
    return sum(1 << fields[name] for name in set(names))


def too_many(count: int, most: int) -> BodyFault:
    """Return the fault of a batch that names too many accounts, slots, headers, transactions and logs."""
    return BodyFault(
        "/data", f"{count} accounts, slots, headers, transactions and logs are too many; a batch may name {most}."
    )


def most_keys(max_queries: int) -> int:
    """Return how many JSON keys a body may have."""
    return _KEYS_PER_QUERY * max_queries + _OTHER_KEYS


def read_document(body: bytes, max_keys: int) -> strict_json.Document:
    """Return the JSON of a body. Raises `InvalidRequest`."""
    try:
        return strict_json.parse(body, max_keys=max_keys)
    except strict_json.TooManyKeys:
        raise InvalidRequest([BodyFault("", f"The body's objects have more than {max_keys} keys in all.")]) from None
    except strict_json.NotJson as error:
        raise InvalidRequest([BodyFault("", str(error), "invalid_json")]) from None


def duplicates(document: strict_json.Document) -> Iterator[BodyFault]:
    """Yield a fault for each key that an object has twice."""
    for key in document.duplicate_keys:
        yield BodyFault("", f"The key {_shown(key)} appears twice in one object.")


def parse(
    body: bytes,
    chains: Chains,
    *,
    max_queries: int,
    count_letters: Callable[[int], None] = lambda _: None,
    needs_payer: bool = True,
    early_checks: Sequence[EarlyCheck] = (),
) -> BatchRequest:
    """Return the request in `body`, with its names resolved. Without `needs_payer`, `fee` may be left out.

    A block that an early check rejects is a fault.
    `count_letters` gets the number of the names' letters before they are resolved. Raises `InvalidRequest` with every
    fault, and the errors of `count_letters` and `resolve_names`.
    """
    document = read_document(body, most_keys(max_queries))
    # Count before validation, so that a body that is too large costs no more than an accepted one.
    if (count := _named(document.value)) > max_queries:
        raise InvalidRequest([too_many(count, max_queries)])
    names = _names_in(document.value) if chains.ens else []
    of_document = [*_excess_of_names(names)]
    if names and not of_document:
        count_letters(sum(map(len, names)))
    accounts = {} if of_document else resolve_names(names, chains)
    of_document += [
        *duplicates(document),
        *_named_twice(document.value, accounts),
        *_rejected(document.value, early_checks),
        *_too_many_blocks_of_transactions(document.value),
    ]
    try:
        fields = document.value if isinstance(document.value, dict) else {}
        context = _Context(
            chains,
            _known_destination(document.value, chains),
            accounts,
            fields=frozenset(fields),
            is_self_funded=fields.get("sender") == _SELF,
            needs_payer=needs_payer,
        )
        request = BatchRequest.model_validate(document.value, context=context)
    except ValidationError as error:
        # The faults that clients recognize come first.
        errors = sorted(error.errors(include_url=False), key=lambda fault: not fault["msg"].startswith(ADDRESS_FAULT))
        of_keys = list(takewhile(lambda fault: fault["msg"].startswith(ADDRESS_FAULT), errors))
        others = islice(errors, len(of_keys), None)
        raise InvalidRequest(chain(map(body_fault, of_keys), of_document, map(body_fault, others))) from None
    if of_document:
        raise InvalidRequest(of_document)
    return request


def _excess_of_names(names: Sequence[str]) -> Iterator[BodyFault]:
    """Yield a fault for each limit that the names exceed. They aren't resolved then."""
    if len(names) > _MOST_NAMES:
        yield BodyFault("/data", f"{len(names)} names are too many; a batch may have {_MOST_NAMES}.")
    if sum(len(name.encode()) for name in names) > _MOST_BYTES_OF_NAMES:
        yield BodyFault("/data", f"The names are longer than {_MOST_BYTES_OF_NAMES} bytes in all.")
    if sum(not letter.isascii() for name in names for letter in name) > _MOST_LETTERS_BEYOND_ASCII:
        sentence = f"The names have over {_MOST_LETTERS_BEYOND_ASCII} letters beyond ASCII, which are slow to check."
        yield BodyFault("/data", sentence)


def _too_many_blocks_of_transactions(document: Any) -> Iterator[BodyFault]:
    naming = (at.startswith("transaction:") or _member(block, "transactions") for _, at, block in blocks(document))
    if (count := sum(map(bool, naming))) > _MOST_BLOCKS_OF_TRANSACTIONS:
        most = f"a batch may name them at {_MOST_BLOCKS_OF_TRANSACTIONS}."
        yield BodyFault("/data", f"Transactions are named at {count} blocks; {most}")


def _rejected(document: Any, early_checks: Sequence[EarlyCheck]) -> Iterator[BodyFault]:
    """Yield a fault for each block that would be rejected."""
    for check, (source, text, _) in product(early_checks, blocks(document)):
        with suppress(PydanticCustomError):  # The model names a malformed selector.
            chain_id, selector = _decimal(source, "", _MAX_BLOCK_NUMBER), _selector(text)
            if rejection := check(chain_id, selector.number, selector.timestamp):
                path, reason = pointer("data", source, text), rejection.reason
                yield BodyFault(path, str(reason), rejection.code, is_of_name=True, reason=reason)


def _named_twice(document: Any, accounts: Accounts) -> Iterator[BodyFault]:
    """Yield a fault for each key that is spelled in two ways. The model would merge them."""
    data = _member(document, "data")
    for source in data:
        selectors = [selector.lower() for selector in _member(data, source)]
        if len({*selectors}) < len(selectors):
            yield BodyFault(pointer("data", source), "A block is named twice, in different capitals.")
    for source, selector, block in blocks(document):
        seen: set[str] = set()
        for key in _member(block, "accounts"):
            account = accounts.get(key)
            spelling = account.name if isinstance(account, Account) else key.lower()
            if spelling in seen:
                path = pointer("data", source, selector, "accounts")
                yield BodyFault(path, f"The account {_shown(key)} is named twice at this block.")
            seen.add(spelling)
        hashes = [name.lower() for name in _member(block, "transactions")]
        if len({*hashes}) < len(hashes):
            path = pointer("data", source, selector, "transactions")
            yield BodyFault(path, "A transaction is named twice at this block.")
    headers = _member(_member(document, "webhook"), "headers")
    if len({name.lower() for name in headers}) < len(headers):
        yield BodyFault("/webhook/headers", "A header is named twice, in different capitals.")


def _named(value: Any) -> int:
    """Count the accounts, slots, headers, transactions, logs and withdrawals in a body, which may be malformed.

    A block counts as at least one.
    """
    return sum(_named_at(block) for *_, block in blocks(value))


def _named_at(block: Any) -> int:
    slots = [account.get("slots") for account in _member(block, "accounts").values() if isinstance(account, dict)]
    header = isinstance(block, dict) and bool(block.get("header"))
    named = _member(block, "transactions").values()
    logs = [each.get(name) for each in named if isinstance(each, dict) for name in ("logs", "blockLogs")]
    withdrawals = block.get("withdrawals") if isinstance(block, dict) else None
    lists = sum(len(of_one) for of_one in (*slots, *logs, withdrawals) if isinstance(of_one, list))
    return max(1, len(slots) + len(named) + lists + header)


def blocks(document: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the source, selector and content of each block in a body, which may be malformed."""
    data = _member(document, "data")
    for source in data:
        for selector, block in _member(data, source).items():
            yield source, selector, block


def _names_in(document: Any) -> list[str]:
    """Return the ENS names in a body without duplicates. The body may be malformed."""
    keys = (key for *_, block in blocks(document) for key in _member(block, "accounts"))
    return list(dict.fromkeys(filter(is_name, keys)))


def _member(value: Any, name: str) -> Mapping[str, Any]:
    """Return the object's member `name` if that is an object too, else an empty object."""
    member = value.get(name) if isinstance(value, dict) else None
    return member if isinstance(member, dict) else {}


def _known_destination(value: Any, chains: Chains) -> int | None:
    text = value.get("destinationChainId") if isinstance(value, dict) else None
    ids = {str(connection.destination_id) for connection in chains.connections}
    return int(text) if isinstance(text, str) and text in ids else None


def pointer(*names: str | int) -> str:
    """Return the JSON pointer (RFC 6901) to the value under these names, for faults. Long names are shortened."""
    return "".join("/" + _shortened(str(name)).replace("~", "~0").replace("/", "~1") for name in names)


def body_fault(error: ErrorDetails) -> BodyFault:
    """Return pydantic's error with a path and a sentence of the API."""
    loc = error["loc"]
    # pydantic marks a wrong key of an object. After an index it puts the kind of the entry.
    is_of_name = loc[-2:] == (error["input"], "[key]")
    before = pairwise((None, *(loc[:-1] if is_of_name else loc)))
    names = [name for index, name in before if name is not None and not isinstance(index, int)]
    path, parts = pointer(*names), [_shortened(str(name)) for name in names]
    if error["type"] in (INVALID, UNSUPPORTED):
        return BodyFault(path, error["msg"], error["type"], is_of_name=is_of_name)
    where = _shown(parts[-1]) if parts else "The body"
    sentences = {
        "missing": f"{where} is missing.",
        "extra_forbidden": f"{where} is not a field of the request.",
        "too_short": f"{where} is empty: nothing to prove.",
        "too_long": f"{where} has more than {error.get('ctx', {}).get('max_length')} entries.",
        "literal_error": f"{_shown(error['input'])} must be {error.get('ctx', {}).get('expected')}.",
        "model_type": f"{where} must be an object.",
        "dict_type": f"{where} must be an object.",
        "list_type": f"{where} must be a list.",
    }
    return BodyFault(path, sentences.get(error["type"], f"{where} must be a string."))
