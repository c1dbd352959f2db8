"""The required coverage of campaigns: each operation, and each sentence of a refusal."""

import ast
import inspect
import re
from collections.abc import Iterator
from types import ModuleType

from campaigns.fuzzing.tally import sentence
from chains.packed import (
    ABSENT_ACCOUNT,
    ABSENT_CLOSES_STORAGE,
    ACCOUNT,
    AT_LEAF,
    BLOCK_HASH,
    BRANCH,
    CLOSES_STORAGE,
    END_OF_BRANCHES,
    EXTENSION,
    FULL_BRANCH,
    OPEN_STORAGE,
    SLOT,
    STORE_CODE_HASH,
    STORE_NONCE_AND_BALANCE,
    STORE_STORAGE_ROOT,
    ZERO_SLOT,
)


def accounts() -> Iterator[int]:
    """Yield each operation code that pushes an account's leaf."""
    for low in range(0x80):
        follows_twice = low & CLOSES_STORAGE and low & 4
        stores = low & (STORE_NONCE_AND_BALANCE | STORE_STORAGE_ROOT | STORE_CODE_HASH)
        if low.bit_count() % 2 == 0 and not follows_twice and (stores or low & CLOSES_STORAGE):
            yield ACCOUNT | low


def absent_accounts() -> Iterator[int]:
    for low in range(0x10):
        if low & ~ABSENT_CLOSES_STORAGE != AT_LEAF:
            yield ABSENT_ACCOUNT | low


OPERATIONS = [
    FULL_BRANCH,
    *range(BRANCH, END_OF_BRANCHES),
    OPEN_STORAGE,
    *range(ZERO_SLOT, ZERO_SLOT + AT_LEAF + 1),
    EXTENSION,
    SLOT,
    BLOCK_HASH,
    *absent_accounts(),
    *accounts(),
]


def sentences(code: ModuleType | type, error: str, functions: str = "") -> set[str]:
    """Return patterns of the messages of `error`, in functions whose names match `functions`."""
    return {
        pattern(call.args[0])
        for function in ast.walk(ast.parse(inspect.getsource(code)))
        if isinstance(function, ast.FunctionDef) and re.match(functions, function.name)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in {error, "_invalid"}
        # A call may pass on another error's message, which has no pattern.
        if isinstance(call.args[0], ast.Constant | ast.JoinedStr)
    }


def pattern(message: ast.expr) -> str:
    parts = message.values if isinstance(message, ast.JoinedStr) else [message]
    return "".join(re.escape(sentence(str(part.value))) if isinstance(part, ast.Constant) else ".+" for part in parts)
