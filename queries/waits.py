"""Waits as data: a code with values says why a batch waits, or what went wrong.

A page or the API builds the sentence, in its own formats, from the table `wait_sentences.toml`. The code says who must
act. Users see the values, so they contain no secrets and no words of a node. Only operators see a node's `words`.
"""

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

from django.db import models

from chains.encoding import in_units
from chains.nodes.node_errors import ChainError, with_words

if TYPE_CHECKING:
    from config.chain_names import ChainName


class Actor(StrEnum):
    """The party that must act before a batch goes on."""

    NOBODY = "nobody"
    USER = "user"  # the submitter: the request can't be fulfilled as it is
    PAYER = "payer"  # the payer of a self-funded batch
    OPERATOR = "operator"  # the operator of this service
    OTHERS = "others"  # operators of attesters or of another chain
    INNER = "inner"  # the actor of the reason inside this reason


_parts = Formatter().parse
_table = tomllib.loads((Path(__file__).parent / "wait_sentences.toml").read_text("utf-8"))
SENTENCES: Mapping[str, str] = {code: sentence for codes in _table.values() for code, sentence in codes.items()}
ACTORS: Mapping[str, Actor] = {code: Actor(actor) for actor, codes in _table.items() for code in codes}
# The name of a sentence's parts that only operators read.
_OPERATORS = "operators"
# The code for an error of a chain's nodes.
NODE_FAILS = "node_fails"


@dataclass(frozen=True)
class WaitReason:
    """A code with values, which are sorted by name. Converted to a string, it is the API's sentence."""

    code: str
    values: "tuple[tuple[str, Value], ...]" = ()
    words: str = field(default="", compare=False)
    """A node's own words about it. No sentence for users has them, because a node may echo our key in any form."""

    def __str__(self) -> str:
        return Words().sentence(self)

    @property
    def for_operators(self) -> str:
        """Return the sentence with its parts for operators, and the node's words, or those about an inner reason."""
        inner = (value for _, value in self.values if isinstance(value, WaitReason))
        return with_words(
            Words(for_operators=True).sentence(self),
            self.words or next((reason.words for reason in inner if reason.words), ""),
        )

    @property
    def parts(self) -> "tuple[WaitReason, ...]":
        """Return the reasons to show one by one."""
        several = next((value for _, value in self.values if isinstance(value, tuple)), ())
        return several if self.code == "several" else (self,)

    @property
    def told(self) -> "WaitReason":
        """Return the reason whose code and actor count: an inner reason if there is one that does, else this."""
        inner = (value.told for _, value in self.values if isinstance(value, WaitReason))
        return next(inner, self) if ACTORS.get(self.code) == Actor.INNER else self

    @property
    def actor(self) -> Actor:
        """Return who must act. Nobody must for a code of a later version."""
        return ACTORS.get(self.told.code, Actor.NOBODY)


Value = str | int | float | WaitReason | tuple[WaitReason, ...] | None
"""A text is a name, an address, a hash, a fault of nodes, or an operator's words. It is shown as it is."""


def wait(code: str, /, **values: Value) -> WaitReason:
    """Return a reason. Raises `TypeError` if its sentence lacks a value or doesn't use one.

    `chain` is allowed even if the sentence doesn't use it, because amounts are in its currency.
    """
    named = {*_names(SENTENCES[code])}
    if named - values.keys() or values.keys() - named - {"chain"}:
        raise TypeError(f"{code} takes the values {sorted(named)}, not {sorted(values)}.")
    return WaitReason(code, tuple(sorted(values.items())))


def _names(template: str) -> Iterator[str]:
    """Yield the names of a template's values."""
    for _, name, form, _ in _parts(template):
        if name == _OPERATORS:
            yield from _names(form or "")
        elif name:
            yield name


def joined(reasons: Iterable[WaitReason]) -> WaitReason | None:
    """Return one reason that stands for all. None: there are none."""
    several = tuple(dict.fromkeys(reasons))
    return wait("several", reasons=several) if len(several) > 1 else next(iter(several), None)


def fault(error: ChainError) -> WaitReason:
    """Return the reason for an error of a chain's nodes. Users see its sentence, and operators the node's words too."""
    return replace(wait(NODE_FAILS, problem=str(error)), words=error.message)


# --- Sentences --------------------------------------------------------------------------------------------------------


class Words:
    """The formats of values in the API's sentences. Pages format chains, numbers and amounts differently."""

    def __init__(self, *, for_operators: bool = False) -> None:
        """If they are `for_operators`, they have the parts `{operators:...}`: signers' addresses, and commands."""
        self._for_operators = for_operators

    def sentence(self, reason: WaitReason) -> str:
        if reason.code not in SENTENCES:  # a later version's code
            return f"Waiting: {reason.code}."
        values = self.values(reason)
        chain = values.get("chain")
        return self._filled(self.template(reason.code), values, chain if isinstance(chain, int) else 0)

    def template(self, code: str) -> str:
        return SENTENCES[code]

    def values(self, reason: WaitReason) -> "Mapping[str, Value]":
        return dict(reason.values)

    def chain(self, chain_id: int) -> str:
        return f"chain {chain_id}"

    def number(self, number: int) -> str:
        return str(number)

    def wei(self, wei: int, chain_id: int, *, is_cost: bool) -> str:
        return f"{wei:,} wei"

    def _filled(self, template: str, values: "Mapping[str, Value]", currency_of: int) -> str:
        text = ""
        for literal, name, form, _ in _parts(template):
            text += literal
            if name == _OPERATORS:
                text += self._filled(form or "", values, currency_of) if self._for_operators else ""
            elif name:
                text += self._value(values.get(name), form or "", currency_of)
        return text

    def _value(self, value: Value, form: str, currency_of: int) -> str:
        match value:
            case None | "" | ():
                return ""
            case int() | float():
                return self._number(value, form, currency_of)
            case WaitReason():
                text = self.sentence(value)
            case tuple():
                text = " ".join(map(self.sentence, value))
            case _:
                text = value
        return _TEXT_FORMS[form](text) if form else text

    def _number(self, value: float, form: str, currency_of: int) -> str:
        whole = int(value)
        match form:
            case "":
                return self.number(whole)
            case "chain" | "Chain":
                return _capital(self.chain(whole)) if form == "Chain" else self.chain(whole)
            case "last" | "final":
                which = "The last one" if form == "last" else "Its newest final block"
                return f" {which} is {self.number(whole)}."
            case "wei" | "data" | "most":
                amount = self.wei(whole, currency_of, is_cost=form != "most")
                return f", and {amount} for its data" if form == "data" else amount
            case "amount" | "cost":
                return f"{in_units(whole, is_cost=form == 'cost')} {chain_of(currency_of).currency}"
        return _OF_NUMBERS[form](value) if form in _OF_NUMBERS else format(value, form)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def chain_of(chain_id: int) -> "ChainName":
    """Return the chain's name and currency, for sentences."""
    # The models are imported at every start. An import at the top would also load the chains.
    from config.chain_names import chain_name  # noqa: PLC0415

    return chain_name(chain_id)


def _days(seconds: float) -> str:
    return f"{seconds / 86_400:.1f} days"


def _age(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"


_TEXT_FORMS: Mapping[str, Callable[[str], str]] = {
    "capital": _capital,
    "then": " {}".format,
    "given": " The reason given: {}".format,
    "waited": " It waited: {}".format,
    "error": " Its last error: {}".format,
}
_OF_NUMBERS: Mapping[str, Callable[[float], str]] = {
    "id": str,
    "label": lambda number: f"{chain_of(int(number)).name} ({number})",
    "gwei": lambda wei: f"{in_units(int(wei), 9, 3, is_cost=True)} gwei",
    "until": lambda wei: f" Waiting for gas at {in_units(int(wei), 9, 3)} gwei or less.",
    "path": ", {:,} of it for the path to old blocks".format,
    "minute": lambda seconds: f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC",
    "second": lambda seconds: f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC",
    "days": _days,
    "age": _age,
    "silence": lambda seconds: (
        f" Nothing was confirmed for {_days(seconds)}: has the rollup stopped, or another Outbox now?"
    ),
    "pace": " A block comes about every {:g} s.".format,
    "last_time": " The last one is {}.".format,
    "transactions": lambda count: "the transaction" if count == 1 else f"{count} transactions",
    "Transactions": lambda count: "The transaction is" if count == 1 else f"{count} transactions are",
    "nonces": lambda count: "1 nonce" if count == 1 else f"{count:,} nonces",
    "have": lambda count: "has" if count == 1 else "have",
}


# --- In a database ----------------------------------------------------------------------------------------------------


def _as_json(value: Value) -> Any:
    match value:
        case WaitReason():
            values = {name: _as_json(each) for name, each in value.values}
            return {"code": value.code, "values": values} | ({"words": value.words} if value.words else {})
        case tuple():
            return list(map(_as_json, value))
    return value


def _of_json(content: Any) -> Any:
    match content:
        case {"code": code, "values": values, **more}:
            named = tuple((name, _of_json(value)) for name, value in sorted(values.items()))
            return WaitReason(code, named, str(more.get("words", "")))
        case list():
            return tuple(map(_of_json, content))
    return content


if TYPE_CHECKING:
    _TextField = models.TextField[WaitReason | None, WaitReason | None]
else:
    _TextField = models.TextField  # not subscriptable at run time


class WaitField(_TextField):
    """A column for a reason, as JSON. Null: no reason. It doesn't accept sentences."""

    description = "Reason of a wait"

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> WaitReason | None:
        reason: WaitReason | None = _of_json(json.loads(value)) if value else None
        return reason

    def to_python(self, value: Any) -> Any:
        return value

    def get_prep_value(self, value: Any) -> str | None:
        if value is None:
            return None
        if not isinstance(value, WaitReason):
            raise TypeError(f"A reason is a code with values, and not {value!r}.")
        return json.dumps(_as_json(value), separators=(",", ":"), sort_keys=True)
