"""Slots from which tokens answer: the search for a row, and what it found, as the form keeps it between posts.

The page keeps the answer of `/find-slots`, signed, because the next search may take seconds and counts.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.core import signing

from accounts.models import User
from api import find_slots
from batch_query_client.stated_words import symbol
from config.configured_chains import get_chains
from config.error_answers import Refused
from explorer.formatting.amounts import whole_units
from explorer.new_batch import storage_slots
from explorer.new_batch.form_sentences import (
    API_FAULT_SENTENCES,
    CERTAINTY_SENTENCES,
    FIELD_SENTENCES,
    LAYOUT_SENTENCES,
)
from proving.reading.asking import ProofUnavailable
from proving.reading.named_block import BlockNotYet
from proving.slots.asked_call import NoCode
from queries import submission
from queries.api_endpoint import status_of
from queries.batch_request import ADDRESS_FAULT, BodyFault, InvalidRequest, pointer
from queries.ens_names import is_name
from queries.submission import SHOWN_PROOFS

_SALT = "slots of tokens in the form, as of version 0.5"
# A token may be upgraded, or a name lead elsewhere, while the page is open.
_MOST_SECONDS = 3600
# Fields of a row by names of the search's request.
_FIELDS = {
    "/sourceChainId": "source",
    "/block": "block",
    "/contract": "token",
    "/arguments/0": "holder",
    "/base": "base",
}
_ADDRESS = re.compile("0x[0-9a-fA-F]{40}")


@dataclass(frozen=True)
class TokenQuestion:
    """A call of a token's view function, as it is typed."""

    source: str
    token: str
    holder: str
    call: str
    block: str
    base: str
    """A hint where the layout begins. Empty: there is none."""

    @property
    def empty_fields(self) -> Sequence[str]:
        return [name for name in ("token", "holder") if not getattr(self, name)]

    @property
    def block_field(self) -> str:
        """Return the row's field that a fault of the block is about. At the newest block it is the token's."""
        return "block" if self.block.startswith("block:") else "at" if self.block == "finalized" else "token"


@dataclass(frozen=True)
class ShownSlot:
    slot: str
    elsewhere: str
    """The account that holds the slot. Empty: it is the token, as it is typed."""
    name: Mapping[str, Any] | None
    layout: str
    certainty: str
    word: str
    value: str
    units: str
    """The value by the number of decimals that the token hints at. Empty: there is no hint."""
    symbol: str
    """The unit of these by the token's own claim. Empty: the slot's name states none."""


@dataclass(frozen=True)
class TokenSlots:
    """The answer of a search."""

    question: TokenQuestion
    answer: Mapping[str, Any]
    other_holders: Sequence[str] = ()

    @property
    def block(self) -> int:
        return int(self.answer["blockNumber"])

    @property
    def accounts(self) -> Mapping[str, Sequence[str]]:
        """Return the slots to prove by their accounts, as the form has them. They keep all that the search names."""
        ((_, blocks),) = self.answer["batch"]["data"].items()
        ((_, asked),) = blocks.items()
        slots = {account: of["slots"] for account, of in asked["accounts"].items()}
        if self.other_holders and self.serves_others:
            ((account, (name,)),) = slots.items()
            slots[account] = [name, *({**name, "keys": [holder]} for holder in self.other_holders)]
        return {account: storage_slots.as_typed(names) for account, names in slots.items()}

    @property
    def serves_others(self) -> bool:
        """Return whether the slots of other holders have the name with another key, if there are others.

        A key that is the contract's own address may be the contract, for every holder.
        """
        if not self.other_holders:
            return True
        slot = self._proven[0]
        keys, own = (slot["slotName"] or {}).get("keys", []), {slot["account"].lower(), self.question.token.lower()}
        is_by_holder = len(keys) == 1 and isinstance(keys[0], str) and _ADDRESS.fullmatch(keys[0]) is not None
        return is_by_holder and keys[0].lower() not in own and self.has_answer and not self.is_of_block

    @property
    def is_of_block(self) -> bool:
        """Return whether the slots hold at this block only."""
        return any(slot["onlyAtThisBlock"] for slot in self.answer["slots"])

    @property
    def is_proxy(self) -> bool:
        return any(slot["role"] not in {"length", "choice"} for slot in self.answer["dependsOn"])

    @property
    def decimals(self) -> int | None:
        decimals: int | None = self.answer["hints"]["decimals"]
        return decimals

    @property
    def symbol(self) -> str:
        """Return the token's symbol, which it claims. Empty: no slot's name states it."""
        return next((slot.symbol for slot in self.slots if slot.symbol), "")

    @property
    def only_node(self) -> str:
        """Return the host of the node that alone confirms the slots. Empty: several do."""
        hosts = self.answer["confirmedBy"]
        return hosts[0] if len(hosts) == 1 else ""

    @property
    def nft(self) -> str:
        """Return the standard of NFTs that the contract names. Empty: it names none."""
        return self.answer["hints"].get("nft") or ""

    @property
    def _proven(self) -> Sequence[Mapping[str, Any]]:
        return [slot for slot in self.answer["slots"] if slot["certainty"] != "path_only"]

    @property
    def count(self) -> int:
        return len(self._proven)

    @property
    def has_answer(self) -> bool:
        """Return whether one word has the answer. Otherwise the answer only follows from the words."""
        return [slot["certainty"] for slot in self._proven] in (["is_value"], ["part_of_word"])

    @property
    def is_certain(self) -> bool:
        return [slot["certainty"] for slot in self._proven] == ["is_value"]

    @property
    def slots(self) -> Iterator[ShownSlot]:
        """Yield the slots that the batch proves."""
        for slot in self._proven:
            value, decimals = slot["value"], self.decimals
            yield ShownSlot(
                slot["slot"],
                "" if slot["account"].lower() == self.question.token.lower() else slot["account"],
                slot["slotName"],
                LAYOUT_SENTENCES[slot["layout"]],
                CERTAINTY_SENTENCES[slot["certainty"]].format(**(slot["part"] or {})),
                str(int(slot["word"], 16)),
                value or "",
                whole_units(int(value), decimals) if value and decimals else "",
                symbol(slot["slotName"] or {}),
            )

    @property
    def signed(self) -> str:
        return signing.dumps([asdict(self.question), self.answer], salt=_SALT, compress=True)


class SlotNotFound(Exception):
    """The search found nothing. `faults` has sentences by the row's fields."""

    def __init__(self, faults: Mapping[str, str], status: int) -> None:
        super().__init__()
        self.faults = faults
        self.status = status


def read(signed: str, question: TokenQuestion, other_holders: Sequence[str]) -> TokenSlots | None:
    """Return what an earlier search found, if it was for this question."""
    try:
        asked, answer = signing.loads(signed, salt=_SALT, max_age=_MOST_SECONDS)
    except signing.BadSignature:
        return None
    return TokenSlots(question, answer, other_holders) if asked == asdict(question) else None


def find(user: User, question: TokenQuestion, destination: str) -> TokenSlots:
    """Search for the slots within the user's limits. Slots that hold at one block only are a question about it.

    Raises `SlotNotFound`.
    """
    try:
        token, holder = _addresses(user, question, destination)
        body = {
            "sourceChainId": question.source,
            "contract": token,
            "signature": question.call,
            "arguments": [holder],
            "block": question.block,
            **({"base": question.base} if question.base else {}),
        }
        found = find_slots.search(user.pk, json.dumps(body).encode).dict()
    except InvalidRequest as invalid:
        fields = {_FIELDS.get(fault.path, "token"): _sentence(fault) for fault in invalid.faults}
        faults = {name: API_FAULT_SENTENCES["block"] if name == "block" else text for name, text in fields.items()}
        raise SlotNotFound(faults, status_of(invalid)) from None
    except Refused as refused:
        is_of_call = refused.code in {"call_failed", "slots_unknown"}
        sentence = FIELD_SENTENCES["not_found"].format(call=question.call) if is_of_call else ""
        field = question.block_field if isinstance(refused, BlockNotYet | NoCode | ProofUnavailable) else "token"
        raise SlotNotFound({field: f"{sentence} {refused.sentence}".strip()}, status_of(refused)) from None
    slots = TokenSlots(question, found)
    return replace(slots, question=replace(question, block=f"block:{slots.block}")) if slots.is_of_block else slots


def _addresses(user: User, question: TokenQuestion, destination: str) -> Sequence[str]:
    """Return the addresses of the token and the holder. The API resolves their names, within its limits.

    Raises `InvalidRequest` and `Refused`.
    """
    words = {question.token: "/contract", question.holder: "/arguments/0"}
    names = [word for word in words if is_name(word)] if get_chains().ens else []
    if not names:
        return [question.token, question.holder]
    accounts = {name: {"props": ["BALANCE"]} for name in names}
    body = {"destinationChainId": destination, "data": {question.source: {"latest": {"accounts": accounts}}}}
    try:
        request = submission.read(user, json.dumps(body).encode(), SHOWN_PROOFS)
    except InvalidRequest as invalid:
        of_source = pointer("data", question.source)
        paths = {of_source: "/sourceChainId"}
        paths |= {of_source + pointer("latest", "accounts", name): words[name] for name in names}
        raise InvalidRequest(replace(fault, path=paths.get(fault.path, "")) for fault in invalid.faults) from None
    resolved = dict(zip(names, [query.address for query in request.queries], strict=True))
    return [resolved.get(word, word) for word in (question.token, question.holder)]


def _sentence(fault: BodyFault) -> str:
    return fault.message.removeprefix(f"{ADDRESS_FAULT}: ")
