"""Sentences of refusals, all of which a campaign must reach."""

import ast
import inspect
import re
from types import ModuleType

from campaigns.fuzzing.tally import sentence


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
