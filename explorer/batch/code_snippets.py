"""Code to copy: calls that read a fact from its registry, and a command that submits a request."""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from chains.tries.packed import HASHED_HEADER_FIELDS
from proving import facts
from proving.facts import AccountFact, EntryFact, Fact, HeaderFact, LogFact, SlotFact, TimeFact
from proving.models import FactsRegistry
from queries.columns import AccountField, EntryField, HeaderField

_TEXTS: Mapping[str, str] = tomllib.loads((Path(__file__).parent / "code_snippets.toml").read_text("utf-8"))
# The reader has Satellite's reads alone: no later properties, and none that a registry holds as a hash.
_FIELDS_OF_READER = frozenset(HeaderField(number) for number in range(15)) - HASHED_HEADER_FIELDS
# The reader's names for functions of the registry, if they differ.
_NAMES_OF_READER = {"accountStorageSlotValues": "storageSlot", "blockAtTimestamp": "timestamp"}


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
    signature = f"{call.function}({','.join(parameter.type for parameter in call.parameters)})({call.answer})"
    declaration = call.declared(f"{parameter.type} {parameter.name}" for parameter in call.parameters)
    arguments = [parameter.value for parameter in call.parameters]
    is_word = call.answer == "bytes32"
    is_number = facts.is_number(fact)
    in_python = "int.from_bytes(word)" if is_number else '"0x" + word.hex()'
    in_typescript = "BigInt(word)" if is_number else "word"
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
        Snippet("cast", f"cast call --rpc-url \"$RPC_URL\" {registry} '{signature}' {' '.join(arguments)}"),
        *_by_reader(row, call, fact),
    )


def solidity_line(block_number: int, fact: Fact) -> str:
    """Return the statement of a contract that reads the fact, which is no `TimeFact`."""
    call = _call(block_number, fact)
    read = f"registry.{call.declared(parameter.value for parameter in call.parameters)}"
    return f"uint256 value = uint256({read});" if facts.is_number(fact) else f"bytes32 value = {read};"


def _by_reader(row: FactsRegistry, call: _Call, fact: Fact) -> Iterator[Snippet]:
    if not row.reader or (isinstance(fact, HeaderFact) and fact.field not in _FIELDS_OF_READER):
        return
    yield Snippet("FactsReader", _contract("Reader", row.reader, call.of_reader(row.source_chain_id)))
    if isinstance(fact, AccountFact) and fact.field == AccountField.STORAGE_ROOT:
        yield Snippet("eth_getProof", _slot_by_proof(row, call))


def _contract(kind: str, address: str, call: _Call) -> str:
    return _TEXTS["solidity"].format(
        kind=kind,
        address=address,
        what=call.what,
        answer=call.answer,
        declaration=call.declared(f"{parameter.type} {parameter.name}" for parameter in call.parameters),
        call=call.declared(parameter.value for parameter in call.parameters),
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
            return _Call("A storage slot", "accountStorageSlotValues", (account, block, slot))
        case EntryFact() | LogFact():
            return _of_transaction(block, fact)
        case HeaderFact():
            field = _Argument("uint8", "field", str(fact.field.value))
            return _Call(f"{fact.field.name} of the header", "headerField", (block, field))
        case TimeFact():
            time = _Argument("uint256", "timestamp", str(fact.timestamp))
            return _Call("The latest block at that time", "blockAtTimestamp", (time,), answer="uint256")


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
