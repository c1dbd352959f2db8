"""Imports run one way: chains <- config <- accounts <- queries <- proving <- api <- explorer."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from devnet.devchain import PROJECT

ORDER = [
    "chains",
    "contracts",
    "config",
    "accounts",
    "queries",
    "proving",
    "api",
    "explorer",
    "attesting",
    "devnet",
    "demo",
]
MAY_IMPORT = {
    "chains": set(),
    # It compiles contracts and checks them. The service needs only what is compiled.
    "contracts": {"chains"},
    # The settings read the chains file. Only `config.urls` imports all applications.
    "config": {"chains"},
    "accounts": {"chains", "config"},
    "queries": {"chains", "config", "accounts"},
    "proving": {"chains", "config", "accounts", "queries"},
    "api": {"chains", "config", "accounts", "queries", "proving"},
    "explorer": {"chains", "config", "accounts", "queries", "proving", "api"},
    # Another operator runs attesters, without the service's code.
    "attesting": {"chains", "config"},
    # The demo, tests and campaigns use devnet. The service doesn't.
    "devnet": {"chains"},
    # The demo uses the service over HTTP, like any client. It deploys contracts by a module that needs no service.
    "demo": {"chains", "devnet"},
}
# From the ground up. A module or package imports only from rows above its own. Modules of two folders stand in the row
# of their own, because commands and workers are above what they share with others.
INSIDE_PROVING = """
models working.broker_wakeup working.ends
working.heads
working.destination_prices
migrations working.counters registries.deployments working.lanes stops
connections facts health.problem_kinds reading.batch_waits working.pruning webhooks
failures reading.block_contents reading.query_values
reading.asking reading.fact_search packing.packs
packing.gas reading.named_block
money sources
registries.balance_costs sending
health.current_problems registries.creations paths reading.provable_blocks
health.stored_problems
reconcile
registries.replacing
registries.registry_setup
health.attester_checks health.chain_watch health.problem_reports health.service_metrics
health.installation_check
admission
readable_facts slots working.worker
apps celery_app management
"""
FILES = [
    path.relative_to(PROJECT)
    for package in ORDER
    for path in sorted((PROJECT / package).rglob("*.py"))
    if path.relative_to(PROJECT).as_posix() != "config/urls.py"
]


@cache
def nodes_of(file: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse((PROJECT / file).read_text())))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_run_one_way(path):
    package = path.parts[0]
    imported = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            imported.add(node.module.split(".")[0])
    assert (imported & set(ORDER)) - {package} <= MAY_IMPORT[package]


def test_imports_run_one_way_inside_proving():
    levels = {name: level for level, row in enumerate(INSIDE_PROVING.strip().splitlines()) for name in row.split()}

    def row_of(module: str) -> str | None:
        """Return the name in a row that a module's dotted name begins with. None if it only opens a folder of such."""
        parts = module.split(".")[1:]
        return next((name for name in (".".join(parts[:2]), *parts[:1]) if name in levels), None)

    inside = {_name(path): path for path in FILES if path.parts[0] == "proving" and len(path.parts) > 1}
    rows = {module: row_of(module) for module in inside}
    folders = {name.partition(".")[0] for name in levels if "." in name}
    assert {module for module, row in rows.items() if row is None} == {"proving", *(f"proving.{f}" for f in folders)}
    assert set(rows.values()) - {None} == set(levels)
    imported = {
        (row, other_row)
        for module, path in inside.items()
        for other in _imported_by(path)
        if (row := rows[module]) and (other_row := rows.get(other)) and row != other_row
    }
    assert ("registries.registry_setup", "sources") in imported
    assert [pair for pair in sorted(imported) if levels[pair[0]] <= levels[pair[1]]] == []


def test_no_modules_import_each_other_in_a_circle():
    """Imports inside functions count, too. A CycleError names the modules."""
    names = {_name(path): path for path in FILES}
    imported = {
        name: {module for module in _imported_by(path) if module in names and module != name}
        for name, path in names.items()
    }
    assert "config.gunicorn" in names
    assert imported["proving.working.worker"] >= {"proving.reconcile.turn", "proving.working.lanes"}
    TopologicalSorter(imported).prepare()


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imported_by(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: {ast.unparse(node)}"
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def test_the_client_stands_for_itself():
    """The client is installed without the service. Its other imports are those in its pyproject.toml."""
    client = PROJECT / "client"
    declared = tomllib.loads((client / "pyproject.toml").read_text())["project"]
    imported: set[str] = set()
    for path in sorted((client / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    standard = sys.stdlib_module_names | {"batch_query_client"}
    names = {re.split(r"[^\w-]", dependency)[0].replace("-", "_") for dependency in declared["dependencies"]}
    assert imported - standard <= names


def test_one_name_is_one_thing():
    """No two modules have the same name, except for names that Django prescribes."""
    conventional = {"__init__", "__main__", "admin", "apps", "base", "models", "settings", "urls", "views", "wsgi"}
    names = [path.stem for path in FILES if "migrations" not in path.parts and path.stem not in conventional]
    assert [name for name in sorted(set(names)) if names.count(name) > 1] == []


def test_endpoints_are_in_the_api():
    """Two endpoints may stay in `queries`: the submission and the status."""
    routers = {path.parts[0] for path in FILES if "ninja.Router" in _imported_by(path)}
    assert routers == {"api"}


def test_storage_and_proving_know_nothing_of_http():
    """They refuse by a code and a sentence. `queries.api_endpoint` has the HTTP status of each code."""
    inner = [path for path in FILES if path.parts[0] in {"queries", "proving"}]
    assert [str(path) for path in inner if "queries.api_endpoint" in _imported_by(path)] == ["queries/api.py"]


def test_a_template_has_short_lines_and_includes_those_of_its_page_and_shared_ones():
    folder = PROJECT / "templates"
    templates = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.html")}
    assert [name for name, text in templates.items() if max(map(len, text.splitlines())) > 120] == []
    pages = {name: name.rpartition("/")[0] for name in templates if name.startswith("explorer/")}
    assert {page.count("/") for page in pages.values()} == {1}
    used = {
        (page, of) for name, page in pages.items() for of in re.findall(r'"(explorer/.*)/\w+\.html"', templates[name])
    }
    assert {(page, of) for page, of in used if of not in (page, "explorer/shared")} == set()


SPENDING = {
    "orders.submit_all",
    *("signing.reserve_version", "signing.reserve_cancellation"),
    *("signing.send_reserved", "signing.sign_and_store", "signing.sign", "signing.store", "signing.broadcast"),
}


def test_pages_build_no_sentence_in_python():
    """Sentences are in templates, or in a table by code at the top of a module."""
    built = []
    tables: set[str] = set()
    for path in (path for path in FILES if path.parts[0] == "explorer"):
        nodes = nodes_of(path)
        skipped: list[ast.AST] = [
            node for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ]
        for node in nodes:
            if isinstance(node, ast.Assign) and node.col_offset == 0 and isinstance(node.value, ast.Dict):
                name = ast.unparse(node.targets[0])
                if name.endswith("SENTENCES"):
                    skipped.append(node)
                    tables.add(name)
        for node in set(nodes) - {child for parent in skipped for child in ast.walk(parent)}:
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "N" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            if re.search(r"\w+ (?:\S+ )+\S+[.!?]\s*$", re.sub(r"<[^>]*>", "", text)):
                built.append(f"{path}:{node.lineno}: {text}")
    assert built == []
    assert len(tables) > 1


def test_few_modules_can_spend_money():
    """docs/developing/architecture.md lists the modules."""
    inside = PROJECT / "proving/sending"
    senders, tenders = set(), set()
    for path in (PROJECT / file for file in FILES):
        nodes = nodes_of(path.relative_to(PROJECT))
        names = {
            f"{node.value.id}.{node.attr}"
            for node in nodes
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        }
        # Other imports of these modules would make more names available.
        froms = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        if inside not in path.parents:
            assert not froms & {
                f"proving.sending.{module}" for module in ("orders", "signing", "replacement", "transaction_monitor")
            }
        if inside not in path.parents and names & SPENDING:
            senders.add(path.relative_to(PROJECT / "proving").as_posix())
        if names & {"transaction_monitor.monitor_all", "transaction_monitor.monitor_for"}:
            tenders.add(path.relative_to(PROJECT / "proving").as_posix())
    assert senders == {"reconcile/apply.py", "registries/creations.py"}
    assert tenders == {
        "working/worker.py",
        "registries/creations.py",
        "registries/registry_setup.py",
        "registries/replacing.py",
    }


def test_chains_can_be_used_without_django():
    for path in (PROJECT / "chains").rglob("*.py"):
        assert "django" not in path.read_text().replace("Django", "")


def test_no_module_of_tests_imports_from_another_that_has_tests():
    """Shared helpers are in modules named for their subject, and fixtures in a conftest."""
    imported = set()
    for folder in ("tests", "campaigns"):
        for path in (PROJECT / folder).rglob("*.py"):
            # A regular expression is used, because parsing all files would take seconds.
            for module, names in re.findall(
                r"^ *(?:from|import) ((?:tests|campaigns)[\w.]*)(?: import (\([^)]*\)|.*))?",
                path.read_text(),
                re.MULTILINE,
            ):
                imported |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))}
    assert "tests.service.submit" in imported
    assert [name for name in sorted(imported) if re.search(r"\.test_\w+", name)] == []
