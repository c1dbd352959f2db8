"""`make docs` builds a site, each page's text beside it, and `llms.txt`, which lists the texts."""

import re
import subprocess

import pytest

from devnet.devchain import PROJECT
from tests.docs.examples import pages

ENVIRONMENT = PROJECT / ".venv-docs"
ENTRY = re.compile(r"- \[[^\]]+\]\((\S+)\): \S.*\S")


@pytest.mark.long
@pytest.mark.skipif(not (ENVIRONMENT / "ready").exists(), reason="Sphinx is not installed: make .venv-docs/ready")
def test_every_page_of_the_site_is_text_too_and_listed(tmp_path):
    printed = subprocess.run(["make", "-n", "docs"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    (command,) = [line.strip("@") for line in printed.splitlines() if "-m sphinx" in line]
    subprocess.run(command.replace("build/docs", str(tmp_path)), shell=True, cwd=PROJECT, check=True)

    documents = [page.removeprefix("docs/") for page in pages() if page.startswith("docs/")]
    for page in documents:
        assert (tmp_path / page).with_suffix(".html").exists(), page
        heading = (PROJECT / "docs" / page).read_text().splitlines()[0]
        text = (tmp_path / page).read_text()
        assert text.startswith(f"{heading}\n")
        assert "\n<!--" not in text
        images = re.findall(r"!\[[^\]]*\]\((?!https:)([^)]+)\)", text)
        assert all((tmp_path / page).parent.joinpath(image).exists() for image in images), page

    title, _, summary, *listed = (tmp_path / "llms.txt").read_text().splitlines()
    assert title == "# Batch Query Service"
    assert summary.startswith("> ")
    entries = [line for line in listed if line and not line.startswith("## ")]
    matches = [ENTRY.fullmatch(entry) for entry in entries]
    assert sorted(match[1] if match else "" for match in matches) == sorted({*documents} - {"index.md"})
