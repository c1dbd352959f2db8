"""Alerts and the dashboard in deploy/monitoring use the service's metrics. Alerts fire when they must."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import proving.sources.attested
import proving.working.worker
from config import metrics_server
from devnet.devchain import PROJECT
from proving.health.problem_kinds import ProblemKind, Reach
from proving.health.service_metrics import ServiceMetrics
from proving.working.counters import ChainEvent
from tests.metrics import chain_events

FOLDER = PROJECT / "deploy/monitoring"
PROMTOOL = shutil.which("promtool")
# Labels that Prometheus itself adds.
ADDED_LABELS = {"job", "instance", "le"}
# Metrics that only an alert of 0.4.0 uses. An operator may keep its file.
USED_BY_0_4_0 = {"batchquery_batches_oldest_seconds"}


def alerts() -> Iterator[tuple[str, str]]:
    """Yield each alert's name and expression. An expression may span several lines."""
    text = (FOLDER / "alerts.yml").read_text()
    for rule in re.split(r"^      - alert: ", text, flags=re.MULTILINE)[1:]:
        name = rule.split("\n", 1)[0]
        match = re.search(r"^        expr: (?:>-\n((?:          .*\n)+)|(.*)\n)", rule, re.MULTILINE)
        assert match, name
        yield name, match[1] or match[2]


def dashboard() -> Iterator[tuple[str, str]]:
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    for panel in panels:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


EXPRESSIONS = [*alerts(), *dashboard()]
OURS, MATCHED = re.compile(r"\b(?:batchquery|process|python)_\w+"), re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
GROUPED = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")


@pytest.fixture
def samples(unreachable_chain, db) -> set[str]:
    """Return the names of all samples in /metrics of a web server or a worker."""
    text = metrics_server.exposition("", [ServiceMetrics()]).content.decode()
    names: set[str] = set()
    for family in text_string_to_metric_families(text):
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        names |= {family.name + suffix for suffix in suffixes}
    return names


def test_every_metric_of_alerts_and_dashboard_exists(samples):
    assert len(EXPRESSIONS) > 50
    assert not {(where, name) for where, text in EXPRESSIONS for name in OURS.findall(text) if name not in samples}


def test_an_alert_or_a_panel_uses_each_metric(samples):
    def families(names: Iterable[str]) -> set[str]:
        return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names if name.startswith("batchquery_")}

    used = families(name for _, text in EXPRESSIONS for name in OURS.findall(text))
    assert families(samples) - used == USED_BY_0_4_0


def test_a_worker_shows_each_event_of_a_chain_from_its_start(unreachable_chain, db):
    """The counters must exist with 0 from the start. Prometheus would not see the increase to a first value of 1."""
    proving.working.worker.Worker()
    assert set(chain_events()) == {*ChainEvent}


def test_every_label_of_alerts_and_dashboard_exists():
    known = {"chain", "node", "outcome", "source", "destination", "attester", "answer", "kind", "route", "status"}
    known |= {"code", "signer", "event", "severity"}
    for where, text in EXPRESSIONS:
        labels = {*MATCHED.findall(text), *re.findall(r"\w+", " ".join(GROUPED.findall(text)))}
        assert not labels - known - ADDED_LABELS, where


def test_every_metric_of_the_service_is_explained(samples):
    page = (PROJECT / "docs/operating/watching.md").read_text()
    ours = {re.sub(r"_(bucket|sum|count)$", "", name) for name in samples if name.startswith("batchquery_")}
    assert len(ours) > 25
    assert not {name for name in ours if f"`{name}`" not in page}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    found_rules: list[dict[str, Any]] = group["rules"]
    return found_rules


def test_every_alert_leads_to_its_paragraph_of_the_runbook():
    for rule in rules():
        # Without one, it is that of the chain or of the problem.
        own = "by (" in rule["expr"] and "severity)" in rule["expr"]
        assert rule.get("labels") in ([None] if own else [{"severity": "critical"}, {"severity": "warning"}]), rule[
            "alert"
        ]
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook"] == f"docs/operating/runbook.md#{rule['alert'].lower()}"
    page = (PROJECT / "docs/operating/runbook.md").read_text()
    sections = dict(re.findall(r"(?ms)^### (\w+)\n(.*?)(?=^##|\Z)", page))
    assert sorted(sections) == sorted(rule["alert"] for rule in rules())
    for name, text in sections.items():
        parts = re.findall(r"(?m)^\*\*(.+?)\*\* \S", text)
        assert re.fullmatch("(Look at)?Do(Don't)?", "".join(parts)), name


def test_each_code_calls_by_one_alert_and_has_a_line_in_the_runbook():
    # A chain that is stopped has a metric of its own. The answering process finds out the other two.
    others = {ProblemKind.SIGNING_STOPPED, ProblemKind.DATABASE_UNAVAILABLE, ProblemKind.CHAINS_FILE}
    reported = [kind for kind in ProblemKind if kind.reach not in {Reach.RISK, Reach.COMMAND}]
    by_code = {
        kind: [name for name, text in alerts() if matches(text, kind)] for kind in reported if kind not in others
    }
    by_code[ProblemKind.NO_WORKER].append("NoWorker")
    assert {code: names for code, names in by_code.items() if len(names) != 1} == {}
    _, _, page = (PROJECT / "docs/operating/runbook.md").read_text().partition("\n| code |")
    assert sorted(re.findall(r"(?m)^\| `(\w+)` \|", page)) == sorted(reported)
    commands = [kind for kind in ProblemKind if kind.reach == Reach.COMMAND]
    assert sorted(re.findall(r"(?m)^- `(\w+)`:", page)) == sorted(commands)


def matches(expression: str, code: str) -> bool:
    """Return whether an expression is about this code. Other alerts only leave out what follows from `storage`."""
    wanted = re.findall(r'batchquery_problems\{code=~?"([^"]+)"', expression.partition("unless")[0])
    return any(code in pattern.split("|") for pattern in wanted)


def run(*arguments: str) -> None:
    if PROMTOOL is None:
        pytest.skip("promtool is not installed (Debian's package prometheus has it)")
    done = subprocess.run([PROMTOOL, *arguments], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_files():
    run("check", "rules", "alerts.yml")
    run("check", "config", "prometheus.example.yml")


@pytest.mark.long
def test_the_alerts_come_when_they_must_and_not_before():
    run("test", "rules", "alerts_test.yml")
    tested = (FOLDER / "alerts_test.yml").read_text()
    assert not [name for name, _ in alerts() if f'alertname="{name}"' not in tested]


def test_prometheus_takes_the_dashboard_s_expressions(tmp_path):
    rules = [{"record": f"panel:{index}", "expr": text} for index, (_, text) in enumerate(dashboard())]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    run("check", "rules", str(tmp_path / "rules.yml"))
