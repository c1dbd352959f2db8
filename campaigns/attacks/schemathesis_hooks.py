"""Hooks for schemathesis, which count answers, and fill requests with existing values.

They run in the environment of `make attack`, without this project's code. The variable ATTACK_KNOWN names a file with
existing values, and ATTACK_COUNTS a file for the counts.
"""

import ast
import atexit
import json
import os
import threading
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import schemathesis

_KNOWN = json.loads(Path(os.environ["ATTACK_KNOWN"]).read_text())
_TAKE_BATCHES = {"/submit-batch-query", "/estimate-batch-query", "/read-proofs", "/submit-request"}
_lock = threading.Lock()
_parsing, _parse = threading.RLock(), ast.parse
_counts: Counter[str] = Counter()
_seconds: list[float] = []


def _chance(case: Any) -> int:
    """Return a number that depends only on the case, because failed cases are tried again."""
    request = (case.path_parameters, case.query, case.body)
    return zlib.crc32(repr(request).encode(errors="replace"))


def _parse_alone(*arguments: Any, **options: Any) -> ast.AST:
    """Parse in one thread at a time.

    In Python 3.11 all threads count the depth of a syntax tree in one place. Hypothesis runs code at each collection of
    garbage, so the thread may change while a tree is made. The count is then wrong, which raises a SystemError.
    """
    with _parsing:
        tree: ast.AST = _parse(*arguments, **options)
        return tree


ast.parse = _parse_alone  # type: ignore[assignment]


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    chance = _chance(case)
    for places in (case.path_parameters, case.query):
        for name, known in _KNOWN["values"].items():
            if places and name in places and chance % 2:
                places[name] = known[chance // 2 % len(known)]
    if case.query and str(case.query.get("wait", "")).isdigit():
        # A longer wait would slow down the flood.
        case.query["wait"] = chance % 2
    if case.operation.path in _TAKE_BATCHES and case.operation.method == "post" and chance % 5 == 0:
        body = dict(_KNOWN["bodies"][chance // 5 % len(_KNOWN["bodies"])])
        if case.operation.path == "/submit-request":
            body["destination_chain_id"] = body.pop("destinationChainId")
        case.body = body


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    with _lock:
        _counts[f"{case.operation.method.upper()} {case.operation.path} {response.status_code}"] += 1
        _seconds.append(response.elapsed)


@atexit.register
def _write() -> None:
    Path(os.environ["ATTACK_COUNTS"]).write_text(json.dumps({"counts": _counts, "seconds": _seconds}))
