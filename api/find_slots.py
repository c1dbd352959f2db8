"""The endpoint that finds the storage slot behind a view call (docs/specification.md, "Find slots")."""

import threading
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Router, Schema
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from accounts import throttle
from accounts.models import ApiKey
from api.fact_schema import SlotName
from batch_query_client import namespaces
from batch_query_client.amounts import is_amount
from batch_query_client.stated_words import MOST_DECIMALS, TOKEN_CALLS
from chains import encoding
from chains.encoding import hex_data
from chains.nodes.node_batches import ExchangeBudget
from chains.nodes.node_errors import ChainError
from chains.nodes.rpc import RpcClient
from config.configured_chains import PAGE_TIMEOUT_SECONDS, get_chains
from proving.reading import named_block
from proving.reading.asking import ChainUnavailable
from proving.slots import signatures, slot_search
from proving.slots.asked_call import SlotQuestion
from proving.slots.signatures import FunctionCall, InvalidCall
from proving.slots.slot_search import DependingSlot, FoundSlot, SlotFindings
from queries.api_endpoint import READING_KEY, ApiError, body_of, errors
from queries.batch_request import BodyFault, InvalidRequest, body_fault, duplicates, pointer, read_document
from queries.storage_layout import Part, SlotPart
from queries.strict_json import INVALID, UNSUPPORTED, invalid, shown, text_type

router = Router(tags=["Facts"])

# Bounds of one search: seconds, and HTTP requests to each node.
_MOST_SECONDS, _MOST_EXCHANGES = 5, 20
# Searches of a user in a minute, and of this process at a time. Its other threads (`WEB_THREADS`) stay free.
_MOST_PER_MINUTE, _MOST_AT_A_TIME = 10, 2
_places = threading.BoundedSemaphore(_MOST_AT_A_TIME)
_MOST_KEYS = 20
_MOST_NUMBER = (1 << 63) - 1
_CHAIN, _POSITION = r"^[1-9][0-9]{0,18}$", r"^(0|[1-9][0-9]?)$"
_BLOCK = r"^(latest|finalized|block:(0|[1-9][0-9]{0,18}))$"


def _address(value: object) -> str:
    text = value if isinstance(value, str) else ""
    if (address := encoding.checksummed(text)) is None:
        raise invalid(f"{shown(value)} {encoding.fault(text)}.")
    return address


def _base(value: object) -> int:
    try:
        return namespaces.base_slot(value if isinstance(value, str) else "")
    except ValueError as why:
        raise invalid(f"{why} It is not {shown(value)}.") from None


class SlotRequest(BaseModel):
    """The view call whose slot to find."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sourceChainId: Annotated[str, text_type(_CHAIN, "A chain is its id, in decimal, not {}.")]
    block: Annotated[str, text_type(_BLOCK, "A block is block:<number>, latest or finalized, not {}.")] = "latest"
    contract: Annotated[str, BeforeValidator(_address)]
    signature: str = Field(
        description="The signature of a view function, such as `balanceOf(address)`. It may name the type that the "
        "function returns, such as `pnl(address)(int256)`."
    )
    arguments: list[str] = Field(
        default_factory=list,
        max_length=signatures.MOST_ARGUMENTS,
        description="Addresses, numbers in decimal or with 0x, true or false, bytes with 0x, and texts.",
    )
    position: Annotated[str, text_type(_POSITION, "A position is a number below 100, in decimal, not {}.")] | None = (
        Field(default=None, description="The position of the word, if the answer has several: decimal, from 0.")
    )
    base: Annotated[int, BeforeValidator(_base, json_schema_input_type=str)] | None = Field(
        default=None,
        description="A hint where the layout begins: a variable's slot in decimal or with 0x, a seed of Solady's, or a "
        "namespace (ERC-7201) such as `erc7201:example.main`.",
    )


_EXAMPLE = {
    "sourceChainId": "31337",
    "block": "latest",
    "contract": "0x5FbDB2315678afecb367f032d93F642f64180aa3",
    "signature": "balanceOf(address)",
    "arguments": ["0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"],
}
_BODY = {"content": {"application/json": {"schema": SlotRequest.model_json_schema(), "example": _EXAMPLE}}}


class SlotOfCall(Schema):
    account: str = Field(description="The contract with the slot. For a proxy, this is the proxy.")
    slot: str
    slotName: SlotName | None = Field(description="Its name, if it has one.")
    layout: Literal["solidity", "vyper", "vyper-0.2.12", "solady", "fixed", "layout_unknown"] = Field(
        description="How the slot follows from the arguments. `fixed`: it doesn't. `layout_unknown`: no layout is "
        "confirmed, so the slot is valid only for these arguments."
    )
    certainty: Literal["is_value", "part_of_word", "one_of_several", "computed", "path_only"] = Field(
        description="`is_value`: the word is the answer. `part_of_word`: a part of it. `one_of_several`: the slot has "
        "the answer, and other slots change the answer too. `computed`: the answer follows from the slot "
        "in another way. `path_only`: the call reads the slot, but its word doesn't change the answer."
    )
    part: SlotPart | None = Field(description="The part of the word that is the answer. null: no part is.")
    word: str = Field(description="32 bytes, proven at the block.")
    value: str | None = Field(
        description="The part by the type that the signature names: a number in decimal, an address or bytes with 0x, "
        "`true` or `false`. Without a type it is a number."
    )
    onlyAtThisBlock: bool = Field(
        description="Slots of `dependsOn` choose this slot by their words, such as the last element of an array, or "
        "the block's time or number chooses it. When they change, another slot has the answer."
    )


class DependingSlotOfCall(Schema):
    account: str
    slot: str
    slotName: SlotName | None = Field(description="Its name, if it has one.")
    word: str
    role: Literal[
        "eip1967_implementation", "eip1967_beacon", "eip1967_admin", "address_of_contract", "length", "choice"
    ]


class SlotHints(Schema):
    decimals: int | None = Field(description="The contract's `decimals()`, as a node returns it, without proof.")
    symbol: str | None = Field(
        description="The contract's `symbol()`, as a node returns it, without proof: anybody can give a token any. "
        "null: it is no symbol that slots' names have, or the call is none of a token."
    )
    nft: Literal["ERC-721", "ERC-1155"] | None = Field(
        description="The standard of NFTs that the contract's `supportsInterface` names, without proof."
    )


class SlotsOfAccount(Schema):
    slots: list[str | SlotName]


class SlotsAtBlock(Schema):
    accounts: dict[str, SlotsOfAccount]


class SlotBatch(Schema):
    data: dict[str, dict[str, SlotsAtBlock]]


class FoundSlots(Schema):
    sourceChainId: str
    blockNumber: str
    blockHash: str
    foundBy: Literal["eth_createAccessList", "debug_traceCall", "eth_call"] = Field(
        description="How the slots were found. `eth_call`: no node tells them, and the search tried slots of known "
        "layouts, so slots elsewhere may change the answer too."
    )
    confirmedBy: list[str] = Field(
        description="The hosts of the nodes that confirm the slots and each trial. One: only this node confirms it."
    )
    slots: list[SlotOfCall]
    dependsOn: list[DependingSlotOfCall] = Field(
        description="Slots with addresses of proxies' code or of contracts that the call runs, arrays' lengths, and "
        "other words that choose a slot, such as the number of a round."
    )
    hints: SlotHints
    batch: SlotBatch = Field(description="`data` of a batch query that proves the slots.")


@router.post(
    "/find-slots",
    operation_id="find_slots",
    auth=READING_KEY,
    response={200: FoundSlots, **errors(400, 401, 411, 413, 415, 422, 429, 503)},
    openapi_extra={"requestBody": {"required": True, **_BODY}},
)
def find_slots(request: HttpRequest) -> FoundSlots:
    """Find the storage slot that a view call reads, with its layout, for a batch query.

    Words are proven. The service tries other words in these slots to see how the answer follows from them.
    """
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    return search(key.user_id, lambda: body_of(request))


def search(user_id: int, read_body: Callable[[], bytes]) -> FoundSlots:
    """Search as a body asks, within the limits of a user, for pages too. Raises `Refused` and `InvalidRequest`."""
    asked = _read(read_body())
    question, block = _question(asked), _block(asked.block)
    chain_id = int(asked.sourceChainId)
    if chain_id not in {connection.source_id for connection in get_chains().connections}:
        why = f"Chain {chain_id} is no source chain of this service; see /chain-connections."
        raise InvalidRequest([BodyFault("/sourceChainId", why, UNSUPPORTED)])
    if not _places.acquire(blocking=False):
        raise ApiError(503, "busy", "The service is busy with other searches. Ask again in a moment.", retry_after=2)
    try:
        # Only a search counts: no invalid request, and none that finds the service busy.
        if seconds := throttle.take("searches for slots", user_id, _MOST_PER_MINUTE):
            sentence = f"You may search {_MOST_PER_MINUTE} times in a minute. Ask again in {seconds} s."
            raise ApiError(429, "too_many_requests", sentence, retry_after=seconds)
        # Its own client: a call that takes long lets nodes rest for nobody else.
        chain = get_chains().chain(chain_id)
        budget = ExchangeBudget(_MOST_EXCHANGES * len(chain.hosts), _MOST_SECONDS)
        rpc = RpcClient(chain, timeout_seconds=PAGE_TIMEOUT_SECONDS, budget=budget)
        header = named_block.confirmed_header(rpc, block)
        return _answer(asked.sourceChainId, question, slot_search.find(rpc, question, header, budget))
    except ChainError as error:
        raise ChainUnavailable(f"{error} Nothing was found.") from None
    finally:
        _places.release()


def _read(body: bytes) -> SlotRequest:
    """Return the request in a body. Raises `InvalidRequest`."""
    document = read_document(body, _MOST_KEYS)
    if faults := [*duplicates(document)]:
        raise InvalidRequest(faults)
    try:
        return SlotRequest.model_validate(document.value)
    except ValidationError as error:
        raise InvalidRequest(map(body_fault, error.errors(include_url=False))) from None


def _question(asked: SlotRequest) -> SlotQuestion:
    try:
        call = FunctionCall.parse(asked.signature, asked.arguments)
    except InvalidCall as why:
        path = pointer("signature") if why.argument is None else pointer("arguments", why.argument)
        raise InvalidRequest([BodyFault(path, str(why), INVALID)]) from None
    position = None if asked.position is None else int(asked.position)
    return SlotQuestion(asked.contract, call, position, asked.base)


def _block(text: str) -> int | Literal["latest", "finalized"]:
    match text:
        case "latest" | "finalized":
            return text
    if (number := int(text.removeprefix("block:"))) > _MOST_NUMBER:
        raise InvalidRequest([BodyFault("/block", "The block number is too large.")])
    return number


def _answer(chain_id: str, asked: SlotQuestion, found: SlotFindings) -> FoundSlots:
    accounts: dict[str, SlotsOfAccount] = {}
    slots = [_slot(slot, asked, found) for slot in found.slots]
    depends_on = [*map(_depending, found.depends_on)]
    proven = [slot for slot in slots if slot.certainty != "path_only"]
    choosing = [slot for slot in depends_on if slot.role in {"length", "choice"}]
    shown: list[SlotOfCall | DependingSlotOfCall] = [*proven, *choosing]
    for each in shown:
        of_account = accounts.setdefault(each.account, SlotsOfAccount(slots=[]))
        of_account.slots.append(each.slotName or _as_requested(each, asked, found))
    return FoundSlots(
        sourceChainId=chain_id,
        blockNumber=str(found.header.number),
        blockHash=hex_data(found.header.hash),
        foundBy=found.method,  # type: ignore[arg-type]
        confirmedBy=[*found.confirmed_by],
        slots=slots,
        dependsOn=depends_on,
        hints=SlotHints(decimals=found.decimals, symbol=found.symbol, nft=found.nft),
        batch=SlotBatch(data={chain_id: {f"block:{found.header.number}": SlotsAtBlock(accounts=accounts)}}),
    )


def _as_requested(
    slot: SlotOfCall | DependingSlotOfCall, asked: SlotQuestion, found: SlotFindings
) -> str | dict[str, Any]:
    """Return a slot without a name for a request. The request states the part of the word that is the answer.

    It states the call of an amount, too, which says that the part is a number, and a token's units.
    """
    part = slot.part if isinstance(slot, SlotOfCall) else None
    if part is None or part == _part(Part()):
        return slot.slot
    call = {"call": asked.call.stated} if _is_of_call(slot.account, asked) else {}
    stated = {**call, **_units(asked, found)} if is_amount(call) else {}
    return {"slot": slot.slot, "keys": [], "layout": "solidity", **stated, "part": part.model_dump()}


def _is_of_call(account: str, asked: SlotQuestion) -> bool:
    """Return whether a name may state the call: readers take the slot's account for the called contract."""
    return asked.position is None and account == asked.contract


def _slot(slot: FoundSlot, asked: SlotQuestion, found: SlotFindings) -> SlotOfCall:
    part, call = _part_of(slot, asked), asked.call
    value = str(part.number(slot.word, is_amount=is_amount({"call": call.stated}))) if part else None
    return SlotOfCall(
        account=slot.account,
        slot=_hex(slot.slot),
        slotName=_stated(slot, asked, found),
        layout=slot.layout,  # type: ignore[arg-type]
        certainty=slot.certainty,
        part=_part(part) if part else None,
        word=_hex(slot.word),
        value=call.text(part.answer(slot.word)) if part and call.answer_type else value,
        onlyAtThisBlock=slot.is_moving,
    )


def _texts(keys: Iterable[object]) -> list[str]:
    """Return keys and arguments as texts, without their types."""
    return [str(key["key"] if isinstance(key, dict) else key).casefold() for key in keys]


def _part_of(slot: FoundSlot, asked: SlotQuestion) -> Part | None:
    """Return the part of the word that is the answer, as the answer's type reads it."""
    return Part.stated({"call": asked.call.stated, "part": vars(slot.part)}) if slot.part else None


def _part(part: Part) -> SlotPart:
    return SlotPart(offset=part.offset, size=part.size, form=part.form)


def _depending(slot: DependingSlot) -> DependingSlotOfCall:
    return DependingSlotOfCall(
        account=slot.account,
        slot=_hex(slot.slot),
        slotName=slot.name.name if slot.name else None,
        word=_hex(slot.word),
        role=slot.role,  # type: ignore[arg-type]
    )


def _stated(slot: FoundSlot, asked: SlotQuestion, found: SlotFindings) -> dict[str, Any] | None:
    """Return the slot's name, which states the call that its word answers."""
    name = slot.name.name if slot.name else None
    if slot.part is None:
        return name
    if slot.layout == "fixed":
        name = {"slot": f"{slot.slot:#x}", "keys": [], "layout": "solidity"}
    if name is None:
        return None
    call = asked.call
    keys = _texts(key for key in name["keys"] if isinstance(key, str) or "type" in key)
    arguments = _texts(each.key for each in call.arguments)
    # Readers take as many keys for the first arguments, also one that is the contract's own address.
    is_in_order = len(keys) > len(arguments) or keys == arguments[: len(keys)]
    stated: dict[str, Any] = {"call": call.stated} if is_in_order and _is_of_call(slot.account, asked) else {}
    if (part := _part_of(slot, asked)) and part != Part():
        stated["part"] = _part(part).model_dump()
    units = _units(asked, found)
    # A symbol is that of the called contract, which the call names.
    stated |= units if "call" in stated else {key: units[key] for key in units if key == "decimals"}
    return {**name, **stated} if stated or name["keys"] else None


def _units(asked: SlotQuestion, found: SlotFindings) -> dict[str, Any]:
    """Return the decimals and the symbol of a token if the answer is an amount of it, and if it has them."""
    if asked.call.signature not in TOKEN_CALLS or not is_amount({"call": asked.call.stated}):
        return {}
    decimals = found.decimals if found.decimals is not None and found.decimals <= MOST_DECIMALS else None
    units = {"decimals": decimals, "symbol": found.symbol}
    return {key: unit for key, unit in units.items() if unit is not None}


def _hex(number: int) -> str:
    return hex_data(number.to_bytes(32))
