"""Mutants of Solidity sources. Each removes or weakens a check, leaves out a statement, or changes a number.

They are made from the compiler's syntax trees, including inline assembly, so each replaces exactly one expression or
statement. Unchanged are values that decide nothing, where they are declared or returned; names and texts; and checks
that the compiler adds (overflow, array bounds, encoded arguments).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from contracts.build import BuildError, run_compiler

Node = dict[str, Any]

# The kind of mutants that were made by hand.
NAMED = "named"

# Fields of syntax tree nodes that have only names and types.
_NO_CHECKS = {"documentation", "parameters", "returnParameters", "typeName"}

_SHIFTED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
# Comparisons that also accept smaller or larger values.
_NEAR_EQUALITY = {"==": ("<=", ">="), "!=": ("<", ">")}
_NEGATED = {"==": "!=", "!=": "=="}
_COMPARISONS = {*_SHIFTED, *_NEGATED}
_ORDERED_TYPES = re.compile(r"u?int|bytes\d|address|enum ")

_CONDITIONS = {
    *(
        (kind, "condition")
        for kind in ("IfStatement", "WhileStatement", "DoWhileStatement", "ForStatement", "Conditional")
    ),
    *(("YulIf", "condition"), ("YulForLoop", "condition"), ("YulSwitch", "expression")),
}

_YUL_COMPARISONS = {"lt", "gt", "slt", "sgt", "eq"}
_YUL_OPPOSITES = {"lt": "gt", "gt": "lt", "slt": "sgt", "sgt": "slt"}
_YUL_BOOLEANS = {*_YUL_COMPARISONS, "iszero"}
# Connectives that can form a condition. `mul` is a conjunction that accepts any non-zero operands.
_YUL_CONNECTIVES = {"or", "and", "mul"}
_YUL_ARITHMETIC = {*_YUL_CONNECTIVES, "add", "sub", "div", "mod", "xor", "not", "shl", "shr", "sar", "byte"}
_YUL_FAILURES = {"revert", "invalid"}
_YUL_EXITS = {*_YUL_FAILURES, "return", "stop"}

_SHIFTS = {"<<", ">>", "<<=", ">>="}
_YUL_SHIFTS = {"shl", "shr", "sar"}
# Distances in bytes. All other computed distances are in nibbles.
_IN_BYTES = re.compile(r"\b8 \*|\bshl\(3,")


class Declared(NamedTuple):
    """The place of a declaration in a source, in bytes."""

    source: str
    start: int
    end: int


@dataclass(frozen=True)
class Mutant:
    """A replacement in a source."""

    source: str
    """Path below `contracts/`."""
    function: str
    """`Contract.function`, or `constructor`, `fallback` and the like. A NAMED mutant has its name here."""
    start: int
    """Offset of the original text, in bytes."""
    end: int
    original: str
    replacement: str
    line: int
    column: int
    occurrence: int = 1
    """Number of the occurrence, from 1, if a function contains the same replacement several times."""
    kind: str = ""
    """Condition, operand, comparison, bound, mask, width, statement, shift, number, constant or NAMED."""

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Return a key that doesn't change when lines move. Each text is on one line."""
        return self.function, _one_line(self.original), _one_line(self.replacement), self.occurrence

    def is_in(self, declared: Declared) -> bool:
        """Return whether a part of the original text is in the declaration."""
        return self.source == declared.source and self.start < declared.end and self.end > declared.start

    def apply(self, text: str) -> str:
        """Return the source with the replacement."""
        raw = text.encode()
        return (raw[: self.start] + self.replacement.encode() + raw[self.end :]).decode()

    def __str__(self) -> str:
        function, original, replacement, _ = self.key
        if self.kind == NAMED:
            return f"{self.source}:{self.line}:{self.column} {function}  [{self.kind}]"
        return f"{self.source}:{self.line}:{self.column} {function}: {original}  ->  {replacement}  [{self.kind}]"


def syntax_trees(sources: Mapping[str, str]) -> dict[str, Node]:
    """Return the syntax tree of each source by path. Raise BuildError if the sources don't compile."""
    output = run_compiler(sources, {"*": {"": ["ast"]}})
    if errors := [each["formattedMessage"] for each in output.get("errors", []) if each["severity"] == "error"]:
        raise BuildError("\n".join(errors))
    return {path: output["sources"][path]["ast"] for path in sources}


def generate(sources: Mapping[str, str], trees: Mapping[str, Node]) -> list[Mutant]:
    """Return all mutants of these sources, ordered by path and line. No two mutants have the same text."""
    declarations = {node["id"]: node for tree in trees.values() for node in _all(tree) if "id" in node}
    mutants = []
    for path in sorted(trees):
        text = sources[path].encode()
        mutants_by_text: dict[bytes, Mutant] = {text: Mutant(path, "", 0, 0, "", "", 0, 0)}
        for name, member in _members(trees[path]):
            for edit in _Member(text, member, declarations).edits():
                whole = text[: edit.start] + edit.replacement.encode() + text[edit.end :]
                original = text[edit.start : edit.end].decode()
                line = text.count(b"\n", 0, edit.start) + 1
                column = len(text[text.rfind(b"\n", 0, edit.start) + 1 : edit.start].decode()) + 1
                mutant = Mutant(path, name, *edit[:2], original, edit.replacement, line, column, kind=edit.kind)
                mutants_by_text.setdefault(whole, mutant)
        mutants += sorted(
            list(mutants_by_text.values())[1:], key=lambda mutant: (mutant.start, mutant.end, mutant.replacement)
        )
    seen: Counter[tuple[str, str, str, int]] = Counter()
    for place, mutant in enumerate(mutants):
        seen[mutant.key] += 1
        mutants[place] = replace(mutant, occurrence=seen[mutant.key])
    return mutants


def imported(trees: Mapping[str, Node]) -> dict[str, set[str]]:
    """Return, for each source path, the source itself and all its direct and indirect imports."""
    direct = {
        path: {node["absolutePath"] for node in tree["nodes"] if node["nodeType"] == "ImportDirective"}
        for path, tree in trees.items()
    }

    def closure(path: str) -> set[str]:
        return {path}.union(*(closure(each) for each in direct[path]))

    return {path: closure(path) for path in direct}


def reached(trees: Mapping[str, Node]) -> dict[str, set[Declared]]:
    """Return, for each source path, the declarations that the code of its contracts may come from.

    Libraries are part of contracts that use them. Interfaces and abstract contracts have no code.
    """
    places = {node["id"]: (path, node) for path, tree in trees.items() for node in _all(tree) if "id" in node}

    def closure(path: str) -> set[Declared]:
        waiting = [
            node["id"]
            for node in trees[path]["nodes"]
            if node.get("contractKind") == "contract" and not node["abstract"]
        ]
        seen = set[int]()
        while waiting:
            declaration = waiting.pop()
            if declaration in seen or declaration not in places:
                continue
            seen.add(declaration)
            waiting += [used for node in _all(places[declaration][1]) for used in _used(node, places)]
        return {Declared(places[each][0], *_range(places[each][1])) for each in seen}

    return {path: closure(path) for path in trees}


class _Edit(NamedTuple):
    start: int
    end: int
    replacement: str
    kind: str


class _Place(NamedTuple):
    """A step on the way down the tree: a node, and its field that leads further down."""

    node: Node
    field: str


class _Member:
    """The edits of one function, modifier or constant."""

    def __init__(self, text: bytes, member: Node, declarations: Mapping[int, Node]) -> None:
        self._text = text
        self._member = member
        self._declarations = declarations
        self._edits: list[_Edit] = []
        self._above: list[_Place] = []
        # Constants and variables that Yul code uses, by the place of use.
        self._yul_declarations = {
            reference["src"]: declarations[reference["declaration"]]
            for node in _all(member)
            if node["nodeType"] == "InlineAssembly"
            for reference in node["externalReferences"]
        }
        self._yul_functions = {
            node["name"]: node for node in _all(member) if node["nodeType"] == "YulFunctionDefinition"
        }
        self._flags = _flags(member)
        # Ids of variables that conditions depend on.
        self._deciding = {
            used["referencedDeclaration"]
            for node in _all(member)
            for field, condition in _children(node)
            if (node["nodeType"], field) in _CONDITIONS
            for used in _all(condition)
            if used["nodeType"] == "Identifier"
        }

    def edits(self) -> list[_Edit]:
        self._visit(self._member)
        return self._edits

    def _visit(self, node: Node) -> None:
        visitors: dict[str, Callable[[Node], None]] = {
            "IfStatement": self._if,
            "WhileStatement": self._loop,
            "DoWhileStatement": self._loop,
            "ForStatement": self._loop,
            "Conditional": self._conditional,
            "RevertStatement": self._revert,
            "ExpressionStatement": self._statement,
            "EmitStatement": self._statement,
            "Return": self._statement,
            "Break": self._statement,
            "Continue": self._statement,
            "VariableDeclarationStatement": self._declaration,
            "ModifierInvocation": self._modifier,
            "FunctionCall": self._call,
            "BinaryOperation": self._operation,
            "Assignment": self._assignment,
            "Identifier": self._constant,
            "MemberAccess": self._largest,
            "Literal": self._constant,
            "YulIf": self._yul_if,
            "YulForLoop": self._yul_loop,
            "YulSwitch": self._yul_switch,
            "YulExpressionStatement": self._yul_statement,
            "YulLeave": self._yul_statement,
            "YulBreak": self._yul_statement,
            "YulContinue": self._yul_statement,
            "YulAssignment": self._yul_statement,
            "YulVariableDeclaration": self._yul_declaration,
            "YulFunctionCall": self._yul_call,
            "YulIdentifier": self._yul_constant,
            "YulLiteral": self._yul_constant,
        }
        if visitor := visitors.get(node["nodeType"]):
            visitor(node)
        for field, child in _children(node):
            if field not in _NO_CHECKS:
                self._above.append(_Place(node, field))
                self._visit(child)
                self._above.pop()

    def _replace(self, kind: str, node: Node, *replacements: str, shown: Node | None = None) -> None:
        """Add an edit of a node for each replacement.

        If `shown`, an expression around the node, is given, edit that instead.
        """
        start, end = _range(node)
        for replacement in replacements:
            if shown is None:
                self._edits.append(_Edit(start, end, replacement, kind))
                continue
            first, last = _range(shown)
            around = self._text[first:start].decode() + replacement + self._text[end:last].decode()
            self._edits.append(_Edit(first, last, around, kind))

    def _replace_statement(self, node: Node, replacement: str) -> None:
        """Replace a Solidity statement, including its semicolon."""
        start, end = _range(node)
        # The text of a `return` without a value already includes its semicolon.
        end = self._text.index(b";", end - 1) + 1
        self._edits.append(_Edit(start, end, replacement, "statement"))

    def _source(self, node: Node) -> str:
        start, end = _range(node)
        return self._text[start:end].decode()

    def _parent(self) -> _Place:
        return self._above[-1]

    # --- Solidity: statements -----------------------------------------------------------------------------------------

    def _if(self, node: Node) -> None:
        self._replace("condition", node["condition"], "false")
        # A check that always fails stops every call, and any test notices that.
        if node.get("falseBody") or not self._exits(node["trueBody"]):
            self._replace("condition", node["condition"], "true")

    def _loop(self, node: Node) -> None:
        if node.get("condition"):
            self._replace("condition", node["condition"], "false")

    def _conditional(self, node: Node) -> None:
        self._replace("condition", node["condition"], "true", "false")

    def _revert(self, node: Node) -> None:
        """Remove a revert. If it is the whole body of an `if`, the mutants of the condition suffice."""
        statement, ancestors = node, list(reversed(self._above))
        while ancestors and ancestors[0].node["nodeType"] in {"Block", "UncheckedBlock"}:
            block = ancestors.pop(0).node
            if block["statements"][-1] is not statement:
                break
            statement = block
        parent = ancestors[0].node
        if parent["nodeType"] == "IfStatement" and not parent.get("falseBody"):
            return
        self._replace_statement(node, "{}")

    def _modifier(self, node: Node) -> None:
        if node.get("kind") == "modifierInvocation":
            self._replace("statement", node, "")

    def _statement(self, node: Node) -> None:
        """Leave out the statement.

        The whole body of an `if` is covered by the condition's mutants, and results must stay.
        """
        expression = node.get("expression") or {}
        if self._parent().field == "loopExpression":
            self._replace("statement", node, "")
            return
        is_tried = expression.get("operator") == "&=" or _callee(expression) in {"require", "assert"}
        if not is_tried and not self._is_result(node) and not self._is_all_of_an_if(node):
            self._replace_statement(node, "{}")

    def _is_result(self, node: Node) -> bool:
        """Return whether the node is the end of its function and sets a result."""
        inner = node
        for above, _ in reversed(self._above):
            if "statements" in above and above["statements"][-1] is not inner:
                return False
            if "statements" not in above and above["nodeType"] != "InlineAssembly":
                if above is not self._member:
                    return False
                break
            inner = above
        results = {each["name"] for each in self._member["returnParameters"]["parameters"]}
        if node["nodeType"] == "YulAssignment":
            return {each["name"] for each in node["variableNames"]} <= results
        target = (node.get("expression") or {}).get("leftHandSide") or {}
        return (node["nodeType"] == "Return" and bool(node.get("expression"))) or target.get("name") in results

    def _is_all_of_an_if(self, node: Node) -> bool:
        """Return whether leaving out the node would leave only a condition."""
        inner = node
        for above, field in reversed(self._above):
            if above["nodeType"] == "IfStatement" and field == "trueBody":
                return not above.get("falseBody") and not self._changes(above["condition"])
            if above.get("statements") != [inner]:
                return False
            inner = above
        return False

    def _changes(self, expression: Node) -> bool:
        """Return whether the expression calls a function that may change the state."""
        called = (
            self._declarations.get(node["expression"].get("referencedDeclaration", 0), {})
            for node in _all(expression)
            if node["nodeType"] == "FunctionCall"
        )
        return any(each.get("stateMutability") == "nonpayable" for each in called)

    def _declaration(self, node: Node) -> None:
        """Declare a variable that decides something without its value. Storage pointers need a value."""
        declared, value = node["declarations"], node.get("initialValue")
        if value is None or _is_zero(value) or len(declared) != 1:
            return
        if declared[0]["id"] in self._deciding and declared[0]["storageLocation"] != "storage":
            self._replace_statement(node, f"{self._source(declared[0])};")

    def _exits(self, statement: Node) -> bool:
        """Return whether execution never continues after the statement."""
        last = _last(statement)
        called = ((last.get("expression") or {}).get("expression") or {}).get("referencedDeclaration", 0)
        body = self._declarations.get(called, {}).get("body")
        return (
            last["nodeType"] in {"Return", "Break", "Continue"}
            or _fails(last)
            or (body is not None and _fails(_last(body)))
            or self._yul_exits(last)
        )

    # --- Solidity: expressions ----------------------------------------------------------------------------------------

    def _call(self, node: Node) -> None:
        if node["kind"] == "functionCall" and node["expression"].get("name") in {"require", "assert"}:
            self._replace("condition", node["arguments"][0], "true")
        if node["kind"] == "typeConversion":
            self._truncation(node)

    def _truncation(self, node: Node) -> None:
        """Omit a conversion that drops high bits where the compiler allows that, and change its width."""
        argument = node["arguments"][0]
        width = _width(argument)
        if not _width(node) < width:
            return
        parent, field = self._parent()
        kind = parent["nodeType"]
        if kind == "Assignment":
            fits = _width(parent["leftHandSide"]) >= width
        elif kind == "VariableDeclarationStatement":
            fits = _width(parent["declarations"][0]) >= width
        elif kind == "BinaryOperation":
            is_distance = parent["operator"] in {"<<", ">>"} and field == "rightExpression"
            fits = is_distance or parent["operator"] in _COMPARISONS
        else:
            fits = parent.get("kind") == "typeConversion" and _width(parent) >= width
        if fits:
            self._replace("width", node, f"({self._source(argument)})")
        # Addresses have only one width, and so have enums, which are named without a type's name.
        if not parent.get("typeDescriptions", {}).get("typeString", "").startswith("address"):
            name = node["expression"].get("typeName", {}).get("name", "")
            self._resize(node, name, wider=fits)

    def _largest(self, node: Node) -> None:
        """Change the maximum of a type by one, and change the type."""
        self._constant(node)
        if node["memberName"] == "max" and node.get("isPure"):
            self._resize(node, node["expression"]["typeDescriptions"]["typeString"], wider=True)

    def _resize(self, node: Node, name: str, *, wider: bool) -> None:
        """Make a type narrower by a byte, and if `wider` also wider by a byte."""
        bits = int(match[1]) if (match := re.search(r"\buint(\d+)\b", name)) else 0
        for other in [bits - 8, *([bits + 8] if wider else [])]:
            if bits and 0 < other < 256:
                self._replace("width", node, self._source(node).replace(str(bits), str(other), 1))

    def _operation(self, node: Node) -> None:
        operator, left, right = node["operator"], node["leftExpression"], node["rightExpression"]
        if operator in {"||", "&&"}:
            self._replace("operand", node, self._source(left), self._source(right))
        elif operator == "&":
            self._mask(node, left, right)
        elif operator in _SHIFTS and not self._is_in_distance(node):
            self._shift(right, is_constant=self._is_constant(right))
        elif operator in _COMPARISONS and not node["isPure"]:
            # A comparison of constants always has the same result, so removing it is enough.
            self._comparison(node)
        if operator in {"||", "&&"} | _COMPARISONS and self._is_value():
            self._replace("condition", node, "true", "false")

    def _assignment(self, node: Node) -> None:
        left, right = node["leftHandSide"], node["rightHandSide"]
        if node["operator"] == "&=":
            self._replace("mask", node, self._source(left))
            self._mask_bits(node, right)
        elif node["operator"] in _SHIFTS:
            self._shift(right, is_constant=self._is_constant(right))

    def _mask(self, node: Node, left: Node, right: Node) -> None:
        for kept, other in ((left, right), (right, left)):
            if not self._is_constant(kept) and _width(kept) >= _width(other):
                self._replace("mask", node, self._source(kept))
            self._mask_bits(node, other)

    def _mask_bits(self, node: Node, mask: Node) -> None:
        """Remove the highest bit of a mask, and add a bit above it."""
        text = self._source(mask)
        if mask["nodeType"] in {"Literal", "YulLiteral"} and (value := int(text, 0)):
            bit = 1 << value.bit_length()
            written = f"0x{{:0{len(text) - 2}x}}" if text.startswith("0x") else "{}"
            self._replace("mask", mask, *(written.format(each) for each in (value ^ bit >> 1, value | bit)), shown=node)

    def _shift(self, distance: Node, *, is_constant: bool) -> None:
        """Change a shift distance by one bit. A computed distance changes by its unit, a nibble or a byte."""
        text = self._source(distance)
        if distance["nodeType"] in {"Literal", "YulLiteral"}:
            self._replace("shift", distance, _moved_number(text)[1])
            return
        step = 1 if is_constant else 8 if _IN_BYTES.search(text) else 4
        if distance["nodeType"].startswith("Yul"):
            self._replace("shift", distance, f"sub({text}, {step})", f"add({text}, {step})")
        else:
            self._replace("shift", distance, f"({text} - {step})", f"({text} + {step})")

    def _comparison(self, node: Node) -> None:
        operator, left, right = node["operator"], node["leftExpression"], node["rightExpression"]
        if operator in _SHIFTED:
            others: tuple[str, ...] = (_SHIFTED[operator],)
        elif _is_zero(left) or _is_zero(right):
            # Nothing is less than zero, so the only change is removal, which the condition's mutants cover.
            return
        elif _ORDERED_TYPES.match(node["commonType"]["typeString"]):
            others = _NEAR_EQUALITY[operator]
        else:
            others = (_NEGATED[operator],)
        start, end = _range(left)[1], _range(right)[0]
        between = self._text[start:end].decode()
        before, after = self._source(left), self._source(right)
        texts = (before + between.replace(operator, other, 1) + after for other in others)
        self._replace("comparison", node, *texts)

    def _is_value(self) -> bool:
        """Return whether the node's value is stored, returned or passed on.

        Such a node is neither a condition nor a part of one.
        """
        parent, field = self._parent()
        if parent["nodeType"] == "TupleExpression":
            parent, field = self._above[-2]
        if parent["nodeType"] == "FunctionCall":
            return field == "arguments" and parent["expression"].get("name") not in {"require", "assert"}
        return parent["nodeType"] in {"Assignment", "VariableDeclarationStatement", "Return"}

    def _constant(self, node: Node) -> None:
        """Change a number by one, or a constant in a condition."""
        check = self._check(node)
        if check is None:
            self._number(node)
            return
        if check.get("isPure"):
            return
        moved = self._moved(node)
        parent, field = self._parent()
        if parent is check and check["nodeType"] == "BinaryOperation" and check["operator"] in _COMPARISONS:
            if check["operator"] not in _SHIFTED:
                return  # `<=` and `>=` replace `==` elsewhere
            # Replacing `<=` by `<` covers the other direction.
            down, up = moved
            moved = (down, "") if (check["operator"] in {"<", ">="}) == (field == "rightExpression") else ("", up)
        self._replace("bound", node, *(each for each in moved if each), shown=check)

    def _number(self, node: Node) -> None:
        """Lower a number by one unless it is a bound, and raise zero. Distances and masks have other edits."""
        if node["nodeType"] not in {"Literal", "YulLiteral"} or node["kind"] != "number" or self._is_tried(node):
            return
        text = self._source(node)
        down, up = _moved_number(text)
        if node.get("typeDescriptions", {}).get("typeString") == "address":
            down = f"address(uint160({text}) - 1)"
        kind = "constant" if self._member["nodeType"] == "VariableDeclaration" else "number"
        self._replace(kind, node, down or up)

    def _is_tried(self, node: Node) -> bool:
        """Return whether the number has edits of another kind, or changing it has no visible effect."""
        parent, field = self._parent()
        is_mask = parent.get("operator") in {"&", "&="} or _name(parent) == "and"
        is_bit = parent.get("operator") in {"<<", "<<="} and field == "leftExpression" and self._source(node) == "1"
        is_nobody = (
            parent.get("kind") == "typeConversion" and _is_zero(node) and self._source(parent).startswith("address")
        )
        is_told = parent["nodeType"] == "YulCase" or _name(parent) in _YUL_FAILURES
        # A first argument of zero is the start of memory, or the first byte of a word.
        is_first = parent["nodeType"] == "YulFunctionCall" and _is_zero(node)
        return is_mask or is_bit or is_nobody or is_told or is_first or self._is_in_distance(node)

    def _is_in_distance(self, node: Node) -> bool:
        """Return whether the node is a shift distance or a part of one."""
        inner = node
        for above, field in reversed(self._above):
            if above.get("operator") in _SHIFTS and field in {"rightExpression", "rightHandSide"}:
                return True
            if _name(above) in _YUL_SHIFTS and above["arguments"][0] is inner:
                return True
            inner = above
        return False

    def _is_constant(self, node: Node) -> bool:
        declaration = self._declarations.get(node.get("referencedDeclaration", 0), {})
        return bool(node.get("isPure") or declaration.get("constant"))

    def _moved(self, node: Node) -> tuple[str, str]:
        """Return the constant minus one and plus one, empty where there is none.

        Both are empty if the node isn't a constant.
        """
        text = self._source(node)
        if node["nodeType"] == "Literal":
            return _moved_number(text) if node["kind"] == "number" else ("", "")
        declaration = self._declarations.get(node.get("referencedDeclaration", 0), {})
        is_largest = node.get("memberName") == "max" and node.get("isPure")
        if not declaration.get("constant") and not is_largest:
            return "", ""
        kind = node["typeDescriptions"]["typeString"]
        if kind == "bytes32":
            return f"bytes32(uint256({text}) - 1)", f"bytes32(uint256({text}) + 1)"
        if not kind.startswith("uint"):
            return "", ""
        wide = text if kind == "uint256" else f"uint256({text})"
        return f"({wide} - 1)", f"({wide} + 1)"

    def _check(self, node: Node) -> Node | None:
        """Return the comparison or mask that has the node as its bound, else the condition around it, else None."""
        inner = node
        for above, field in reversed(self._above):
            if (above["nodeType"], field) in _CONDITIONS:
                return inner
            if above.get("operator") in _COMPARISONS or _name(above) in _YUL_BOOLEANS:
                return above
            if not _passes_on(above, field, inner):
                return None
            inner = above
        return None

    # --- Yul ----------------------------------------------------------------------------------------------------------

    def _yul_if(self, node: Node) -> None:
        self._replace("condition", node["condition"], "0")
        if not self._yul_exits(node["body"]):
            self._replace("condition", node["condition"], "1")

    def _yul_loop(self, node: Node) -> None:
        self._replace("condition", node["condition"], "0")

    def _yul_switch(self, node: Node) -> None:
        values = [case["value"]["value"] for case in node["cases"] if case["value"] != "default"]
        numbers = {int(value, 0) for value in values}
        other = next(number for number in range(len(numbers) + 1) if number not in numbers)
        self._replace("condition", node["expression"], *values, str(other))

    def _yul_statement(self, node: Node) -> None:
        """Leave out the statement.

        The condition's mutants cover the whole body of an `if`, and a failure at its end.
        """
        statements = self._parent().node["statements"]
        fails = _name(node.get("expression", {})) in _YUL_FAILURES and statements[-1] is node
        is_all = self._above[-2].node["nodeType"] == "YulIf" and (fails or len(statements) == 1)
        if not is_all and not self._is_result(node):
            self._replace("statement", node, "{}")

    def _yul_declaration(self, node: Node) -> None:
        """Set a variable that decides something to zero. If its value consists of checks, those have edits instead."""
        value = node.get("value")
        decides = any(each["name"] in self._flags for each in node["variables"])
        if value and decides and not _is_zero(value) and _name(value) not in _YUL_CONNECTIVES | _YUL_BOOLEANS:
            self._replace("statement", value, "0")

    def _yul_call(self, node: Node) -> None:
        name, arguments = _name(node), node["arguments"]
        if name in {"or", "and"} or (name == "mul" and self._yul_decides()):
            self._yul_operands(node)
        if name in _YUL_OPPOSITES:
            left, right = map(self._source, arguments)
            self._replace("comparison", node, f"iszero({_YUL_OPPOSITES[name]}({left}, {right}))")
        if name == "eq" and not any(map(_is_zero, arguments)):
            left, right = map(self._source, arguments)
            self._replace("comparison", node, f"iszero(gt({left}, {right}))", f"iszero(lt({left}, {right}))")
        parent, _ = self._parent()
        is_operand = _name(parent) in {"or", "and", "iszero"} or (_name(parent) == "mul" and self._yul_decides())
        if name in _YUL_BOOLEANS and not is_operand and parent["nodeType"] not in {"YulIf", "YulForLoop", "YulSwitch"}:
            self._replace("condition", node, "0", "1")
        if name in _YUL_SHIFTS and not self._is_in_distance(node):
            self._shift(arguments[0], is_constant=self._is_yul_constant(arguments[0]))

    def _yul_operands(self, node: Node) -> None:
        """Replace a condition by each of its operands, and a masked value by the value without its mask.

        Expressions that only combine bits are not changed.
        """
        arguments = node["arguments"]
        constant = [self._is_yul_constant(argument) for argument in arguments]
        is_mask = _name(node) == "and" and any(constant)
        if not is_mask and not self._yul_decides() and not any(_name(each) in _YUL_BOOLEANS for each in arguments):
            return
        kind = "mask" if is_mask else "operand"
        self._replace(kind, node, *(self._source(arguments[place]) for place in (0, 1) if not constant[place]))
        if is_mask:
            for argument in arguments:
                self._mask_bits(node, argument)

    def _yul_decides(self) -> bool:
        """Return whether the node is a condition, an operand of one, or part of a value that becomes one."""
        for above, field in reversed(self._above):
            kind = above["nodeType"]
            if kind == "YulFunctionCall" and _name(above) in _YUL_CONNECTIVES | {"iszero"}:
                continue
            if kind in {"YulAssignment", "YulVariableDeclaration"}:
                return any(each["name"] in self._flags for each in _variables(above))
            return (kind, field) in _CONDITIONS
        return False

    def _is_yul_constant(self, node: Node) -> bool:
        """Return whether the node is a number, or is computed from numbers."""
        if node["nodeType"] == "YulFunctionCall":
            return all(map(self._is_yul_constant, node["arguments"])) and bool(node["arguments"])
        return node["nodeType"] == "YulLiteral" or bool(self._yul_declarations.get(node["src"], {}).get("constant"))

    def _yul_constant(self, node: Node) -> None:
        check = self._check(node)
        if not self._is_yul_constant(node):
            return
        if check is None:
            self._number(node)
            return
        text = self._source(node)
        down, up = _moved_number(text) if node["nodeType"] == "YulLiteral" else (f"sub({text}, 1)", f"add({text}, 1)")
        moved = [down, up]
        parent, _ = self._parent()
        if parent is check and check["nodeType"] == "YulFunctionCall":
            name = _name(check)
            if name == "eq":
                return
            if name in _YUL_OPPOSITES:
                # The rule is the same as in Solidity, but `lt` and `gt` are never inclusive.
                is_second = parent["arguments"][1] is node
                moved = [down] if (name in {"lt", "slt"}) == is_second else [up]
        self._replace("bound", node, *(each for each in moved if each), shown=check)

    def _yul_exits(self, statement: Node) -> bool:
        last = _last(statement)
        if last["nodeType"] != "YulExpressionStatement":
            return last["nodeType"] in {"YulLeave", "YulBreak", "YulContinue"}
        name = _name(last["expression"])
        body = self._yul_functions.get(name, {}).get("body")
        return name in _YUL_EXITS or (body is not None and _name(_last(body).get("expression", {})) in _YUL_FAILURES)


def _members(tree: Node) -> Iterator[tuple[str, Node]]:
    """Yield the name and the node of each function, modifier and constant of a source."""
    for node in tree["nodes"]:
        prefix, members = (
            (f"{node['name']}.", node["nodes"]) if node["nodeType"] == "ContractDefinition" else ("", [node])
        )
        for member in members:
            is_code = member["nodeType"] in {"FunctionDefinition", "ModifierDefinition"} and member.get("body")
            if is_code or member.get("constant"):
                yield prefix + (member["name"] or member["kind"]), member


def _flags(member: Node) -> set[str]:
    """Return the names of Yul variables that decide something, directly or through other variables."""
    roots = [node[field] for node in _all(member) for kind, field in _CONDITIONS if node["nodeType"] == kind]
    values: dict[str, list[Node]] = {}
    for node in _all(member):
        if node["nodeType"] in {"YulAssignment", "YulVariableDeclaration"} and node.get("value"):
            for variable in _variables(node):
                values.setdefault(variable["name"], []).append(node["value"])
    flags: set[str] = set()
    while roots:
        node = roots.pop()
        if node["nodeType"] == "YulFunctionCall" and _name(node) in _YUL_CONNECTIVES | {"iszero"}:
            roots += node["arguments"]
        elif node["nodeType"] == "YulIdentifier" and node["name"] not in flags:
            flags.add(node["name"])
            roots += values.get(node["name"], [])
    return flags


def _last(statement: Node) -> Node:
    """Return the innermost last statement of a block. Return other nodes, and empty blocks, unchanged."""
    statements = statement.get("AST", statement).get("statements")
    return _last(statements[-1]) if statements else statement


def _fails(statement: Node) -> bool:
    called = (statement.get("expression") or {}).get("expression") or {}
    return statement["nodeType"] == "RevertStatement" or called.get("name") == "revert"


def _passes_on(node: Node, field: str, operand: Node) -> bool:
    """Return whether a bound or mask on that operand's result also bounds or masks the node.

    The distance of a shift is an exception.
    """
    kind = node["nodeType"]
    if kind == "BinaryOperation":
        return node["operator"] not in {"<<", ">>"} or field == "leftExpression"
    if kind == "YulFunctionCall":
        name = _name(node)
        tells_where = name in {"shl", "shr", "sar", "byte"} and node["arguments"][0] is operand
        return name in _YUL_ARITHMETIC and not tells_where
    return kind == "TupleExpression" or node.get("kind") == "typeConversion"


def _children(node: Node) -> Iterator[tuple[str, Node]]:
    for field, value in node.items():
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, dict) and "nodeType" in child:
                yield field, child


def _all(node: Node) -> Iterator[Node]:
    yield node
    for _, child in _children(node):
        yield from _all(child)


def _used(node: Node, places: Mapping[int, tuple[str, Node]]) -> Iterator[int]:
    """Yield the ids of declarations that a node names. A library's name alone uses none of its functions."""
    if node["nodeType"] == "ContractDefinition":
        yield from node["linearizedBaseContracts"]
    names = [node.get("referencedDeclaration"), node.get("function")]
    names += [each["declaration"] for each in node.get("externalReferences", [])]
    for name in names:
        if isinstance(name, int) and name in places and places[name][1].get("contractKind") != "library":
            yield name


def _range(node: Node) -> tuple[int, int]:
    start, length, _ = map(int, node["src"].split(":"))
    return start, start + length


def _variables(node: Node) -> list[Node]:
    """Return the variables that a Yul assignment or declaration sets."""
    variables: list[Node] = node["variableNames" if node["nodeType"] == "YulAssignment" else "variables"]
    return variables


def _callee(node: Node) -> str:
    """Return the name of the function in a Solidity call. Empty for other nodes."""
    return str(node["expression"].get("name", "")) if node.get("nodeType") == "FunctionCall" else ""


def _name(node: Node) -> str:
    """Return the name of the function in a Yul call. Empty for other nodes."""
    return str(node["functionName"]["name"]) if node.get("nodeType") == "YulFunctionCall" else ""


def _width(node: Node) -> int:
    """Return the number of bits of an unsigned integer type. 0 for other types, including constant expressions."""
    match = re.fullmatch(r"uint(\d+)", node["typeDescriptions"]["typeString"])
    return int(match[1]) if match else 0


def _is_zero(node: Node) -> bool:
    """Return whether the node is the number zero or the zero address."""
    if node["nodeType"] == "FunctionCall" and node["kind"] == "typeConversion":
        return _is_zero(node["arguments"][0])
    return node["nodeType"] in {"Literal", "YulLiteral"} and node.get("value") in {"0", "0x0", "0x00"}


def _moved_number(text: str) -> tuple[str, str]:
    """Return the number minus one and plus one in the same notation. Empty where there is no such number."""
    if re.fullmatch(r"\d+", text):
        return (str(int(text) - 1) if int(text) else ""), str(int(text) + 1)
    if re.fullmatch(r"0x[0-9a-fA-F]+", text):
        value, size = int(text, 16), len(text) - 2
        return (f"0x{value - 1:0{size}x}" if value else ""), f"0x{value + 1:0{size}x}"
    return "", ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
