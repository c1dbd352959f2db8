"""Mutant schemata: one source contains all its mutants, and the balance of an address chooses one of them.

So a file's mutants are compiled once. The balance is outside of every contract, so a node can choose a mutant for one
request.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from campaigns.contract_mutants.compiling import Code
from campaigns.contract_mutants.generate import NAMED, Mutant, Node
from contracts.build import CODE, SETTINGS, artifact_name, code_of, needed, run_compiler

# The account whose balance is the number of the chosen mutant. With 0 the contract is the original.
SWITCH = "0x4d00000000000000000000000000000000000000"

# The code is larger and slower than the original in any case, so the compiler needn't try as hard.
CHEAP_SETTINGS = {**SETTINGS, "optimizer": {"enabled": True, "runs": 200}}

_LIBRARY = "Chosen.sol"
_LIBRARY_TEXT = f"""\
// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

library Chosen {{
    function isMutant(uint256 mutant) internal view returns (bool chosen) {{
        assembly ("memory-safe") {{
            chosen := eq(balance({SWITCH}), mutant)
        }}
    }}
}}
"""

# Fewer mutants aren't worth a compilation of their own.
_FEWEST = 10

# The zones have the same names wherever they are declared.
_ZONE = re.compile(r"\b(constant (?:NODE|NODE_END|STACK|STACK_END) = )(0x[0-9a-f]+);")
_HIGHER = 0x1000

_STATEMENTS = {"RevertStatement", "ExpressionStatement", "EmitStatement", "Return", "Break", "Continue"}
_YUL_STATEMENTS = {"YulExpressionStatement", "YulLeave", "YulBreak", "YulContinue", "YulAssignment"}
_YUL_EXPRESSIONS = {"YulFunctionCall", "YulIdentifier", "YulLiteral"}
# Yul functions that change nothing.
_WITHOUT_EFFECT = {
    *("add", "sub", "mul", "div", "mod", "exp", "not", "and", "or", "xor", "shl", "shr", "sar", "byte", "iszero"),
    *("lt", "gt", "slt", "sgt", "eq", "mload", "sload", "tload", "keccak256", "calldataload", "calldatasize", "caller"),
    *("address", "chainid", "gas", "number", "timestamp", "returndatasize", "extcodesize", "blockhash", "signextend"),
}
_NAMES_OF_CALLS = re.compile(r"\b([A-Za-z_$][\w$]*)\s*\(")


class Schema(NamedTuple):
    """Sources in which some mutants of one source can be chosen."""

    texts: Mapping[str, str]
    """All sources, by path."""
    mutants: Mapping[int, Mutant]
    """Mutants by number."""


def schema(sources: Mapping[str, str], trees: Mapping[str, Node], mutants: Sequence[Mutant]) -> Schema:
    """Return the schema of mutants of one source. Mutants that can't be chosen in it are left out."""
    path = mutants[0].source
    choices = _Choices(sources[path].encode(), trees[path])
    numbered = {number: mutant for number, mutant in enumerate(mutants, 1) if choices.add(number, mutant)}
    while True:
        text, spans = choices.write(numbered)
        texts = {**{each: _as_view(source) for each, source in sources.items()}, path: text, _LIBRARY: _LIBRARY_TEXT}
        # Only types are checked here, which is quick.
        output = run_compiler(needed(texts, path), {path: {"": ["ast"]}}, settings=CHEAP_SETTINGS)
        errors = [each for each in output.get("errors", []) if each["severity"] == "error"]
        if not errors:
            return Schema({each: _with_higher_zones(source) for each, source in texts.items()}, numbered)
        faulty = {number for error in errors for number in _at_fault(error, spans, numbered)}
        if not faulty:
            # No mutant can be told from the others, so each is compiled alone.
            return Schema(sources, {})
        numbered = {number: mutant for number, mutant in numbered.items() if number not in faulty}


def compile_schemata(
    sources: Mapping[str, str], trees: Mapping[str, Node], mutants: Sequence[Mutant], contracts: Sequence[str]
) -> list[tuple[Schema, Code]]:
    """Return schemata of mutants of one source, and the code of the contracts at these paths with each of them.

    There are several schemata if the compiler can't compile one of all mutants. Mutants that can't be chosen are left
    out.
    """
    made = schema(sources, trees, mutants)
    if not made.mutants:
        return []
    code: dict[str, Mapping[str, Any]] = {}
    for path in contracts:
        texts = needed(made.texts, path)
        selection = {each: {"": ["ast"]} for each, text in texts.items() if " immutable " in text}
        selection[path] = {**selection.get(path, {}), "*": list(CODE)}
        output = run_compiler(texts, selection, settings=CHEAP_SETTINGS)
        if any(each["severity"] == "error" for each in output.get("errors", [])):
            # The stack is too deep, for example.
            left = list(made.mutants.values())
            half = len(left) // 2
            halves = [left[:half], left[half:]] if half >= _FEWEST else []
            return [each for part in halves for each in compile_schemata(sources, trees, part, contracts)]
        code |= {artifact_name(path, name): code_of(output, path, name) for name in output["contracts"][path]}
    return [(made, code)]


class _Span(NamedTuple):
    number: int
    """Number of a mutant, or less than 0 for a function."""
    start: int
    end: int


def _at_fault(error: Mapping[str, Any], spans: Sequence[_Span], mutants: Mapping[int, Mutant]) -> set[int]:
    """Return the numbers of the mutants in the error's place, else of the smallest part around it.

    If that is a function, these are its left out statements, else all its mutants.
    """
    place = error.get("sourceLocation", {"start": -1, "end": -1})
    start, end = place["start"], place["end"]
    if inside := {span.number for span in spans if span.number in mutants and start <= span.start and span.end <= end}:
        return inside
    around = [span for span in spans if span.start <= start and end <= span.end]
    if not around:
        return set()
    smallest = min(around, key=lambda span: span.end - span.start)
    if smallest.number in mutants:
        return {smallest.number}
    inner = {
        span.number
        for span in spans
        if span.number in mutants and smallest.start <= span.start and span.end <= smallest.end
    }
    return {number for number in inner if mutants[number].kind == "statement"} or inner


class _Choice(NamedTuple):
    """A part of a source with a form that chooses between the original and a replacement."""

    start: int
    end: int
    before: str
    after: str
    """The original stands between these, with the choices in it."""


class _Choices:
    def __init__(self, text: bytes, tree: Node) -> None:
        self._text = text
        self._nodes: dict[tuple[int, int], list[Node]] = {}
        self._numbers: list[tuple[int, int]] = []
        self._choices: dict[int, _Choice] = {}
        for place, node in enumerate(_functions(tree), 1):
            self._read(node["body"])
            self._choices[-place] = _Choice(*_range(node), "", "")

    def add(self, number: int, mutant: Mutant) -> bool:
        """Add a mutant. Return False if it can't be chosen by a value."""
        choice = None if mutant.kind == NAMED else self._choice(number, mutant)
        if choice:
            self._choices[number] = choice
        return choice is not None

    def write(self, numbers: Mapping[int, Mutant]) -> tuple[str, list[_Span]]:
        """Return the source with these mutants, and the place of each in it, in bytes."""
        # Larger parts come first. Among parts of the same size a statement is around its expression.
        waiting = sorted(
            ((choice, number) for number, choice in self._choices.items() if number in numbers or number < 0),
            key=lambda each: (each[0].start, -each[0].end, each[1]),
        )
        out, spans = bytearray(), list[_Span]()

        def emit(start: int, end: int) -> None:
            """Write a part of the source."""
            while waiting and waiting[0][0].end <= end:
                choice, number = waiting.pop(0)
                out.extend(self._text[start : choice.start])
                began = len(out)
                out.extend(choice.before.encode())
                emit(choice.start, choice.end)
                out.extend(choice.after.encode())
                spans.append(_Span(number, began, len(out)))
                start = choice.end
            out.extend(self._text[start:end])

        emit(0, len(self._text))
        return _as_view(f'{out.decode()}\nimport {{Chosen}} from "{_LIBRARY}";\n'), spans

    def _read(self, node: Node) -> None:
        """Note the place of a node and of all nodes in it."""
        start, end = _range(node)
        is_number = node.get("typeDescriptions", {}).get("typeString", "").startswith("int_const")
        if is_number and not any(first <= start and end <= last for first, last in self._numbers):
            self._numbers.append((start, end))
        self._nodes.setdefault((start, end), []).append(node)
        for child in _children(node):
            self._read(child)

    def _choice(self, number: int, mutant: Mutant) -> _Choice | None:
        kinds = {node["nodeType"] for node in self._nodes.get((mutant.start, mutant.end), [])}
        if kinds & (_YUL_STATEMENTS | _YUL_EXPRESSIONS):
            return _yul_choice(number, mutant, is_statement=bool(kinds & _YUL_STATEMENTS))
        if mutant.kind == "statement":
            return self._statement(number, mutant)
        return self._expression(number, mutant) if kinds else None

    def _expression(self, number: int, mutant: Mutant) -> _Choice:
        start, end, new = mutant.start, mutant.end, mutant.replacement
        for first, last in self._numbers:
            # A number has no type before it is used, and a choice between two numbers has the smallest type.
            if first <= start and end <= last:
                around = self._text[first:start].decode() + new + self._text[end:last].decode()
                return _Choice(first, last, f"(Chosen.isMutant({number}) ? uint256({around}) : uint256(", "))")
        return _Choice(start, end, f"(Chosen.isMutant({number}) ? ({new}) : (", "))")

    def _statement(self, number: int, mutant: Mutant) -> _Choice | None:
        nodes = [node for end in (mutant.end, mutant.end - 1) for node in self._nodes.get((mutant.start, end), [])]
        if mutant.replacement == "{}" and any(node["nodeType"] in _STATEMENTS for node in nodes):
            return _Choice(mutant.start, mutant.end, f"{{ if (!Chosen.isMutant({number})) {{ ", " } }")
        declared = next((node for node in nodes if node["nodeType"] == "VariableDeclarationStatement"), None)
        if declared is None:
            return None
        # A declaration can't be in a block, so its value becomes an assignment.
        variable = declared["declarations"][0]
        before = f"; if (!Chosen.isMutant({number})) {{ {variable['name']}"
        return _Choice(_range(variable)[1], mutant.end, before, " }")


def _functions(tree: Node) -> Iterator[Node]:
    """Yield the functions and modifiers with a body. Elsewhere are constants and types."""
    for node in tree["nodes"]:
        members = node["nodes"] if node["nodeType"] == "ContractDefinition" else [node]
        yield from (member for member in members if member.get("body"))


def _children(node: Node) -> Iterator[Node]:
    for field, value in node.items():
        if field == "typeName":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, dict) and "nodeType" in child:
                yield child


def _range(node: Node) -> tuple[int, int]:
    start, length, _ = map(int, node["src"].split(":"))
    return start, start + length


def _yul_choice(number: int, mutant: Mutant, *, is_statement: bool) -> _Choice | None:
    chosen = f"eq(balance({SWITCH}), {number})"
    if is_statement:
        return (
            _Choice(mutant.start, mutant.end, f"if iszero({chosen}) {{ ", " }") if mutant.replacement == "{}" else None
        )
    # Both values are computed, and one of them is taken.
    if not set(_NAMES_OF_CALLS.findall(f"{mutant.original} {mutant.replacement}")) <= _WITHOUT_EFFECT:
        return None
    before = f"add(mul({chosen}, {mutant.replacement}), mul(iszero({chosen}), "
    return _Choice(mutant.start, mutant.end, before, "))")


def _with_higher_zones(text: str) -> str:
    """Return the text with the zones of `MemoryZones` higher, because larger code has more variables in memory."""
    return _ZONE.sub(lambda match: f"{match[1]}{int(match[2], 16) + _HIGHER:#x};", text)


def _as_view(text: str) -> str:
    """Return the text without `pure`, because a mutant's choice reads the state."""
    return re.sub(r"\bpure\b", "view", text)
