"""`make attack`: a failure of the tool that makes requests is no fault of the service, and no success either."""

import sys

import pytest

from campaigns.attacks import requests
from campaigns.attacks.table import run_all

# The ends of what schemathesis 4.32 has printed.
FAILED = """
==================================== ERRORS ====================================
____________________________________ GET /a ____________________________________
Runtime Error

AST constructor recursion depth mismatch (before=33, after=185)

=================================== SUMMARY ====================================

Errors:
  🚫 Runtime Error: 1
"""
AWAY = FAILED.replace("Runtime", "Network")
FOUND = """
=================================== FAILURES ===================================
____________________________________ GET /a ____________________________________
- ST101 Server error

=================================== SUMMARY ====================================

Failures:
  ❌ ST101 Server error: 2
"""
GENERATOR_FAILED = "the generator failed, not the service"


@pytest.fixture
def flood(tmp_path, monkeypatch, capsys):
    """Return a function that floods with a schemathesis whose rounds end as given."""

    def flood(*ends: str) -> tuple[int, str]:
        script = tmp_path / "schemathesis"
        (tmp_path / "ends").mkdir()
        for number, text in enumerate(ends):
            (tmp_path / "ends" / str(number)).write_text(text)
        script.write_text(f"""#!{sys.executable}
import json, os, pathlib, sys
end = min(pathlib.Path("ends").iterdir())
text = end.read_text()
end.unlink()
print(text)
counted = {{"counts": {{"GET /a 200": 50}}, "seconds": [0.1] * 50}}
pathlib.Path(os.environ["ATTACK_COUNTS"]).write_text(json.dumps(counted))
sys.exit(1 if text else 0)
""")
        script.chmod(0o700)
        monkeypatch.setattr(requests, "_SCHEMATHESIS", script)
        found = requests.rounds("http://127.0.0.1:9", "key", tmp_path, 1, 100)
        code = run_all([("requests", lambda: iter([found.seen("requests", 100)]))])
        return code, capsys.readouterr().out

    return flood


def test_a_generator_that_always_fails_leaves_the_outcome_unknown(flood):
    code, told = flood(FAILED, FAILED, FAILED)
    assert code == 2
    assert told.count(GENERATOR_FAILED) == 3
    assert "UNKNOWN requests" in told
    assert "BROKEN" not in told
    assert "All promises were kept." not in told


def test_requests_of_a_round_in_which_the_generator_failed_do_not_count(flood):
    code, told = flood("", FAILED, "")
    assert code == 0
    assert told.count(GENERATOR_FAILED) == 1
    assert "100 GET /a 200" in told


@pytest.mark.parametrize("end", [FOUND, AWAY, FAILED + FOUND, "killed"])
def test_what_the_service_may_have_done_is_a_broken_promise(flood, end):
    code, told = flood(FAILED, end)
    assert code == 1
    assert "BROKEN  requests" in told
