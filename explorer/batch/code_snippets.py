"""Code to copy: calls that read a fact from its registry, and a command that submits a request."""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from batch_query_client.namespaces import namespace
from batch_query_client.stated_words import BALANCE_SEED
from chains.encoding import checksummed
from chains.tries.packed import HASHED_HEADER_FIELDS
from explorer.formatting.stated_part import StatedPart
from proving import facts
from proving.facts import AccountFact, EntryFact, Fact, HeaderFact, LogFact, SlotFact, TimeFact
from proving.models import FactsRegistry
from queries.columns import AccountField, EntryField, HeaderField
from queries.storage_layout import NamedSlot, integer

_TEXTS: Mapping[str, str] = tomllib.loads((Path(__file__).parent / "code_snippets.toml").read_text("utf-8"))
# The reader has Satellite's reads alone: no later properties, and none that a registry holds as a hash.
_FIELDS_OF_READER = frozenset(HeaderField(number) for number in range(15)) - HASHED_HEADER_FIELDS
# The reader's names for functions of the registry, if they differ.
_NAMES_OF_READER = {"accountStorageSlotValues": "storageSlot", "blockAtTimestamp": "timestamp"}
_WORDS = 1 << 256
# Names that no function of the shown contract has: words, types and builtins of Solidity, and names in its code.
_RESERVED = frozenset(_TEXTS["reserved"].split())
_TYPE = re.compile("u?int[0-9]+|bytes[0-9]+|u?fixed[0-9]+x[0-9]+")
# A larger slot is shown in hexadecimal.
_MOST_DECIMAL = 1 << 32


@dataclass(frozen=True)
class Snippet:
    language: str
    code: str


@dataclass(frozen=True)
class _Argument:
    type: str
    name: str
    value: str

    @property
    def in_python(self) -> str:
        return self.value if self.type.startswith("uint") else f'"{self.value}"'

    @property
    def in_typescript(self) -> str:
        return f"{self.value}n" if self.type == "uint256" else self.in_python


@dataclass(frozen=True)
class _Call:
    """A view function of the facts registry with its arguments."""

    what: str  # a name of the fact
    function: str
    parameters: tuple[_Argument, ...]
    answer: str = "bytes32"
    name: Mapping[str, Any] | None = None
    """The name of the slot, if the request has named it."""

    @property
    def stated(self) -> StatedPart | None:
        """Return the part of the word that the slot's name states."""
        return StatedPart.of(self.name) if self.name else None

    def declared(self, parts: Iterable[str]) -> str:
        return f"{self.function}({', '.join(parts)})"

    def of_reader(self, source: int) -> "_Call":
        """Return the call of a facts reader, which takes the source chain's id first and the block second."""
        name = _NAMES_OF_READER.get(self.function, self.function)
        block_first = sorted(self.parameters, key=lambda parameter: parameter.name != "blockNumber")
        # It takes indexes as words, because a contract may have them so.
        words = (replace(each, type="uint256") if each.type == "uint32" else each for each in block_first)
        return replace(self, function=name, parameters=(_Argument("uint256", "chainId", str(source)), *words))

    @property
    def abi(self) -> str:
        entry = {
            "type": "function",
            "name": self.function,
            "stateMutability": "view",
            "inputs": [{"name": parameter.name, "type": parameter.type} for parameter in self.parameters],
            "outputs": [{"name": "", "type": self.answer}],
        }
        return json.dumps([entry], separators=(",", ":"))


def reading(row: FactsRegistry, block_number: int, fact: Fact) -> tuple[Snippet, ...]:
    """Return code that reads one fact: in Solidity, TypeScript, Python and a shell.

    If a facts reader is known, also in Solidity by the reader; and for a storage root, a shell's code that reads slots
    under it by proof.
    """
    registry = row.address
    call = _call(block_number, fact)
    declaration = call.declared(f"{parameter.type} {parameter.name}" for parameter in call.parameters)
    is_word = call.answer == "bytes32"
    stated = call.stated or (StatedPart.of({}) if facts.is_number(fact) else None)
    in_python, in_typescript = (stated.in_python, stated.in_typescript) if stated else ('"0x" + word.hex()', "word")
    words = {"registry": registry, "result": "word" if is_word else "number", "answer": call.answer}
    return (
        Snippet("Solidity", _contract("Registry", registry, call)),
        Snippet(
            "viem",
            _TEXTS["viem"].format(
                **words,
                declaration=declaration,
                function=call.function,
                arguments=", ".join(parameter.in_typescript for parameter in call.parameters),
                printed=in_typescript if is_word else "number",
            ),
        ),
        Snippet(
            "web3.py",
            _TEXTS["web3py"].format(
                **words,
                abi=call.abi,
                call=call.declared(parameter.in_python for parameter in call.parameters),
                printed=in_python if is_word else "number",
            ),
        ),
        *_in_shell(registry, call),
        *_by_reader(row, call, fact),
    )


def solidity_line(block_number: int, fact: Fact) -> str:
    """Return the statement of a contract that reads the fact, which is no `TimeFact`."""
    call = _call(block_number, fact)
    read = f"registry.{call.declared(parameter.value for parameter in call.parameters)}"
    stated = call.stated or (StatedPart.of({}) if facts.is_number(fact) else None)
    return f"{stated.solidity_type} value = {stated.in_solidity(read)};" if stated else f"bytes32 value = {read};"


def _in_shell(registry: str, call: _Call) -> Iterator[Snippet]:
    stated = call.stated
    is_whole = stated is None or (stated.part.is_whole and stated.kind == "number" and stated.part.form != "bool")
    answer = stated.solidity_type if stated and is_whole else call.answer
    signature = f"{call.function}({','.join(parameter.type for parameter in call.parameters)})({answer})"
    arguments = " ".join(parameter.value for parameter in call.parameters)
    command = f"cast call --rpc-url \"$RPC_URL\" {registry} '{signature}' {arguments}"
    if stated is None or is_whole:
        yield Snippet("cast", command)
    elif commands := stated.in_shell:
        yield Snippet("cast", f"WORD=$({command})\n{commands}")


def _by_reader(row: FactsRegistry, call: _Call, fact: Fact) -> Iterator[Snippet]:
    if not row.reader or (isinstance(fact, HeaderFact) and fact.field not in _FIELDS_OF_READER):
        return
    yield Snippet("FactsReader", _contract("Reader", row.reader, call.of_reader(row.source_chain_id)))
    if isinstance(fact, AccountFact) and fact.field == AccountField.STORAGE_ROOT:
        yield Snippet("eth_getProof", _slot_by_proof(row, call))


def _contract(kind: str, address: str, call: _Call) -> str:
    arguments = {parameter.name: parameter.value for parameter in call.parameters}
    what, function, answer = call.what, "read() external", call.answer
    lines: list[str] = []
    if call.name and (slot := _slot_of_holder(call.name)):
        function = f"{_function(call.name, arguments['account'])}(address holder, uint256 blockNumber) internal"
        lines.append(f"bytes32 slot = {slot};")
        arguments |= {"blockNumber": "blockNumber", "slot": "slot"}
    read = f"FACTS.{call.declared(arguments.values())}"
    if call.stated:
        lines.append(f"bytes32 word = {read};")
        answer, read = call.stated.solidity_type, call.stated.in_solidity("word")
    return _TEXTS["solidity"].format(
        kind=kind,
        address=address,
        what=", ".join([what, *_said(call.name)]) if call.name else what,
        answer=call.answer,
        declaration=call.declared(f"{parameter.type} {parameter.name}" for parameter in call.parameters),
        function=function,
        returned=answer,
        lines="".join(f"\n        {line}" for line in [*lines, f"return {read};"]),
    )


def _slot_by_proof(row: FactsRegistry, call: _Call) -> str:
    """Return shell code that shows the proof of a slot to the reader. Nodes of less than 32 bytes are left out."""
    account, block, *_ = (parameter.value for parameter in call.parameters)
    values = {"source": row.source_chain_id, "block": block, "account": account, "slot": f"0x{'00' * 32}"}
    return _TEXTS["slot_by_proof"].format(reader=row.reader, **values)


def _call(block_number: int, fact: Fact) -> _Call:
    block = _Argument("uint256", "blockNumber", str(block_number))
    match fact:
        case AccountFact():
            account = _Argument("address", "account", fact.address)
            field = _Argument("uint8", "field", str(fact.field.value))
            return _Call(fact.field.name, "accountField", (account, block, field))
        case SlotFact():
            account = _Argument("address", "account", fact.address)
            slot = _Argument("bytes32", "slot", fact.slot)
            return _Call("A storage slot", "accountStorageSlotValues", (account, block, slot), name=fact.name)
        case EntryFact() | LogFact():
            return _of_transaction(block, fact)
        case HeaderFact():
            field = _Argument("uint8", "field", str(fact.field.value))
            return _Call(f"{fact.field.name} of the header", "headerField", (block, field))
        case TimeFact():
            time = _Argument("uint256", "timestamp", str(fact.timestamp))
            return _Call("The latest block at that time", "blockAtTimestamp", (time,), answer="uint256")


def _said(name: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a slot's name says, for a comment. Nothing proves it."""
    if name.get("call"):
        yield f"said by its sender to be {name['call']}"
    if bits := StatedPart.of(name).bits:
        yield bits
    if known := namespace(int(name["slot"], 16)):
        yield f"in {known}"


def _function(name: Mapping[str, Any], account: str) -> str:
    """Return the name of a function for any holder."""
    function, _, types = name.get("call", "").partition(")")[0].partition("(")
    # The mapping may be by the contract's own address, whatever the argument is. Solady's base is that address.
    keys = [*map(str.lower, filter(_is_address, name["keys"])), f"0x{int(name['slot'], 16) >> 96:040x}"]
    is_by_argument = types == "address" and account.lower() not in keys
    return function if is_by_argument and not (function in _RESERVED or _TYPE.fullmatch(function)) else "read"


def _slot_of_holder(name: Mapping[str, Any]) -> str:
    """Return the code of the slot of any `holder`, for the slot of one. Empty: the slot follows from no one address."""
    base, layout, keys = int(name["slot"], 16), name["layout"], name["keys"]
    holder, seed = divmod(base, 1 << 96)
    if holder and seed == BALANCE_SEED and keys == [{"index": "0"}] and layout == "solidity":
        return f"keccak256(abi.encodePacked(holder, uint96({seed:#x})))"
    places = [place for place, key in enumerate(keys) if _is_address(key)]
    if len(places) != 1:
        return ""
    before, after = keys[: places[0]], keys[places[0] + 1 :]
    number = int(NamedSlot(slot=name["slot"], keys=before, layout=layout, call="f()").number, 16)
    code = _hashed("holder", _number(number), layout)
    for key in after:
        if isinstance(key, str):
            code = _hashed(_number(integer(key) % _WORDS), code, layout)
        elif "member" in key:
            code = f"keccak256(abi.encode({code}))" if layout == "vyper-0.2.12" else code
            code = f"bytes32(uint256({code}) + {integer(key['member'])})"
        else:
            return ""
    return code


def _is_address(key: object) -> bool:
    return isinstance(key, str) and checksummed(key) is not None


def _number(slot: int) -> str:
    return f"uint256({slot if slot < _MOST_DECIMAL else f'{slot:#066x}'})"


def _hashed(key: str, slot: str, layout: str) -> str:
    return f"keccak256(abi.encode({', '.join([key, slot] if layout == 'solidity' else [slot, key])}))"


def _of_transaction(block: _Argument, fact: EntryFact | LogFact) -> _Call:
    index = _Argument("uint32", "txIndex", str(fact.entry))
    match fact:
        case EntryFact(field=EntryField.HASH):
            return _Call("The hash of a transaction", "transactionHash", (block, index))
        case EntryFact():
            field = _Argument("uint8", "field", str(fact.field.value))
            return _Call(f"{fact.field.name} of a receipt", "receiptField", (block, index, field))
        case LogFact():
            log = _Argument("uint32", "logIndex", str(fact.log))
            # A contract that only compares the hash with zero would take the log of any emitter.
            warning = "The hash of any emitter's log: compare it with ProvenFacts.requireLog"
            return _Call(warning, "logHash", (block, index, log))


def submitting(base_url: str, body: str) -> str:
    """Return a shell command that submits `body`, with a placeholder for the key."""
    quoted = body.replace("'", "'\\''")
    return f"curl --header \"api-key: $API_KEY\" --json '{quoted}' '{base_url}/submit-batch-query'"
