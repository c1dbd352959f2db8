"""Static files as `manage.py collectstatic` stores them for production."""

import json
import os
import re
from pathlib import Path

import pytest
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.management import call_command

from config import settings as project
from devnet.devchain import PROJECT

pytestmark = pytest.mark.outside


@pytest.mark.long
def test_a_script_imports_another_by_the_name_that_pages_load_it_by(settings, tmp_path):
    settings.STATIC_ROOT, settings.STORAGES = str(tmp_path), project.STORAGES
    call_command("collectstatic", "--no-input", verbosity=0)

    def stored(script: str) -> str:
        return staticfiles_storage.url(script).rpartition("/")[2]

    def imports(text: str) -> list[str]:
        return re.findall(r"""(?:^import\b[^;]*?|\bimport\()["'](\..*)["']""", text, re.MULTILINE)

    folder = PROJECT / "static"
    plain = {str(path.relative_to(folder)): imports(path.read_text()) for path in folder.rglob("*.js")}
    assert plain["js/live.js"] == ["./times.js"] != [f"./{stored('js/times.js')}"]
    assert (plain["js/check.js"], plain["js/proofs.js"]) == (["./checking.js"], ["../vendor/noble/sha3.js"])
    assert plain["vendor/noble/sha3.js"] == ["./_u64.js", "./utils.js"]
    for script, names in plain.items():
        script_folder = Path(script).parent
        text = (tmp_path / script_folder / stored(script)).read_text()
        assert imports(text) == [
            f"{name.rpartition('/')[0]}/{stored(os.path.normpath(script_folder / name))}" for name in names
        ]


def test_keccak_is_that_of_the_release_that_the_npm_lock_pins():
    pinned = json.loads((PROJECT / "package-lock.json").read_text())["packages"]["node_modules/@noble/hashes"][
        "version"
    ]
    # npm may install it anywhere, also several times in different versions.
    installed = [
        path.parent
        for path in (PROJECT / "node_modules").resolve().rglob("@noble/hashes/package.json")
        if json.loads(path.read_text())["version"] == pinned
    ]
    ours = PROJECT / "static" / "vendor" / "noble"
    assert {file.name for file in ours.iterdir()} == {"LICENSE", "_u64.js", "sha3.js", "utils.js"}
    for file in ours.iterdir():
        assert file.read_bytes() == (installed[0] / file.name).read_bytes()


def test_idiomorph_is_what_the_npm_lock_pins():
    # The files are committed, so running the service doesn't need npm.
    ours, installed = PROJECT / "static" / "vendor" / "idiomorph", PROJECT / "node_modules" / "idiomorph"
    assert {file.name for file in ours.iterdir()} == {"LICENSE", "idiomorph-ext.min.js"}
    for name, source in (("LICENSE", "LICENSE"), ("idiomorph-ext.min.js", "dist/idiomorph-ext.min.js")):
        assert (ours / name).read_bytes() == (installed / source).read_bytes()
