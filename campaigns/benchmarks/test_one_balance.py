"""What proving one balance runs through: from its submission, by the worker, to the page that shows it DONE."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import pytest
from django.test import Client

from devnet.devchain import PROJECT
from tests.proving.working import prove_and_show, work_on_all
from tests.service import ALICE, a_key, request, submit

pytestmark = pytest.mark.django_db(transaction=True)

SERVICE = ("accounts", "api", "chains", "config", "contracts", "database", "explorer", "proving", "queries")


@contextmanager
def counting_calls() -> Iterator[Counter[CodeType]]:
    """Count calls of the service's functions. Lambdas, comprehensions and modules are no functions here."""
    calls: Counter[CodeType] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[frame.f_code] += 1

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        for code in [code for code in calls if not _is_of_service(code)]:
            del calls[code]


def _is_of_service(code: CodeType) -> bool:
    path = Path(code.co_filename)
    if code.co_name.startswith("<") or not path.is_relative_to(PROJECT):
        return False
    return path.relative_to(PROJECT).parts[0] in SERVICE


def test_one_balance(service, client: Client, report: Callable[[str, object], None]):
    key = a_key()
    submit(key, request(ALICE, block=1))
    work_on_all()  # what is done once, for all batches
    service.mine()
    asked = request(ALICE, block=service.head())
    with counting_calls() as calls:
        statements = prove_and_show(client, key, asked)
    files = {code.co_filename for code in calls}
    assert any(file.endswith("registry/contract.py") for file in files), "what runs in greenlets isn't counted"
    report("modules", len(files))
    report("functions", len(calls))
    report("calls of them", calls.total())
    report("SQL statements", statements)


def test_lines(report: Callable[[str, object], None]):
    for package in (*SERVICE, "attesting", "client", "demo", "devnet", "campaigns", "tests"):
        files = [path for path in (PROJECT / package).rglob("*.py") if "node_modules" not in path.parts]
        lines = sum(len(path.read_text().splitlines()) for path in files)
        report(f"lines of Python in {package}/", f"{lines:,} in {len(files)} modules")
