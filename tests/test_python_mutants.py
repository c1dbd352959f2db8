"""The tool that tests the tests: which changes it makes, and what it says of each."""

import ast
import subprocess
from pathlib import Path

import pytest
from coverage import CoverageData

from campaigns.python_mutants.generate import Mutant, generate
from campaigns.python_mutants.trial import TrialError, Verdict, covering, judge, listed, table

SOURCE = '''"""A module."""
LIMIT = 10


class Account:
    size = 3

    def grow(self, by: int = 1) -> "int | None":
        """Grow."""
        if not by or by < 0:
            raise ValueError(f"{by + 1}")
        self.size += by
        logger.info("%d", by + 1)
        notify("é", True, by == LIMIT)
        return self.size - 2
'''


def test_each_place_of_a_function_is_changed_in_turn():
    mutants = list(generate("a.py", SOURCE))
    assert [(mutant.line, mutant.before, mutant.after) for mutant in mutants] == [
        (10, "not by or by < 0", "(not (not by or by < 0))"),
        (10, "not by or by < 0", "(not by and by < 0)"),
        (10, "not by", "(by)"),
        (10, "by < 0", "(by <= 0)"),
        (10, "0", "(0 + 1)"),
        (11, 'raise ValueError(f"{by + 1}")', "pass"),
        (12, "self.size += by", "pass"),
        (14, 'notify("é", True, by == LIMIT)', "pass"),
        (14, "True", "False"),
        (14, "by == LIMIT", "(by != LIMIT)"),
        (15, "return self.size - 2", "return None"),
        (15, "self.size - 2", "(self.size + 2)"),
        (15, "2", "(2 + 1)"),
    ]
    assert all(ast.dump(ast.parse(mutant.apply(SOURCE))) != ast.dump(ast.parse(SOURCE)) for mutant in mutants)


@pytest.fixture
def project(tmp_path: Path, monkeypatch) -> Path:
    """A function that two tests run, one of them from outside."""
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = outside\n")
    (tmp_path / "small.py").write_text("def double(number):\n    done = 1\n    done += 2\n    return number * 2\n")
    (tmp_path / "test_small.py").write_text(
        "import pytest\nfrom small import double\n\n"
        "@pytest.mark.outside\ndef test_zero():\n    assert double(0) == 0\n\n"
        "def test_two():\n    assert double(2) == 4\n"
    )
    return tmp_path


BOTH = ["test_small.py::test_two", "test_small.py::test_zero"]


@pytest.mark.parametrize(
    ("after", "tests", "verdict"),
    [
        ("return None", BOTH, Verdict.OUTSIDE),
        ("return number * 3", BOTH, Verdict.INSIDE),
        ("return number * 3", BOTH[1:], Verdict.SURVIVED),
        ("return 2 * number", BOTH, Verdict.SURVIVED),
        ("return None", [], Verdict.NOT_RUN),
    ],
)
def test_a_mutant_is_judged_by_the_tests_that_run_its_line(
    project: Path, after: str, tests: list[str], verdict: Verdict
):
    source = (project / "small.py").read_text()
    start = source.index("return")
    mutant = Mutant("small.py", 4, start, len(source) - 1, source[start:-1], after)
    assert judge(project, mutant, tests, processes=1) == verdict
    assert (project / "small.py").read_text() == source
    assert table({mutant: verdict}).count(str(mutant)) == (verdict != Verdict.OUTSIDE)


def test_that_tests_could_not_be_run_is_no_verdict(project: Path):
    mutant = Mutant("small.py", 4, 0, 0, "", "")
    with pytest.raises(TrialError, match="not found"):
        judge(project, mutant, ["test_small.py::test_gone"], processes=1)


def test_the_tests_of_a_line_are_those_that_have_run_it(project: Path):
    data = CoverageData(no_disk=True)
    for context, lines in {
        "": [1],
        "test_small.py::test_two|run": [2, 4],
        "test_small.py::test_two|setup": [4],
        "test_small.py::test_zero[|]|run": [4],
    }.items():
        data.set_context(context)
        data.add_lines({str(project / "small.py"): lines})
    at = [covering(data, project, Mutant("small.py", line, 0, 0, "", "")) for line in (1, 2, 3, 4)]
    assert at == [[], ["test_small.py::test_two"], [], ["test_small.py::test_two", "test_small.py::test_zero[|]"]]


def test_a_copy_has_what_git_would_add(tmp_path: Path):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for name in ("a.py", "b.log", ".gitignore"):
        (tmp_path / name).write_text("*.log\n")
    assert sorted(listed(tmp_path)) == [".gitignore", "a.py"]
