"""Static files as `manage.py collectstatic` stores them for production."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.management import call_command

from config import settings as project
from devnet.devchain import PROJECT
from tests.fresh_installation import fresh_installation
from tests.serving.process import ANSWER_SECONDS, WebServer, serving

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


# --- Files that are not collected -------------------------------------------------------------------------------------

SENTENCE = (
    "The pages' files of this version are missing in STATE_DIR: run manage.py collectstatic with the web server's "
    "STATE_DIR, then restart the web server."
)


def get(server: WebServer, path: str) -> requests.Response:
    return requests.get(server.url + path, headers={"Accept": "text/html"}, timeout=ANSWER_SECONDS)


@pytest.fixture(scope="module")
def without_files(tmp_path_factory) -> Iterator[WebServer]:
    folder = tmp_path_factory.mktemp("web")
    with serving(folder, static=str(folder / "collected")) as server:
        yield server


def test_a_server_without_the_files_says_so_is_not_ready_and_serves_plain_pages(without_files):
    unready = get(without_files, "/readyz")
    assert (unready.status_code, unready.json()) == (503, {"status": "unready", "problem": SENTENCE})
    assert "\nbatchquery_static_files 0.0\n" in get(without_files, "/metrics").text
    folder = without_files.installation.folder / "static"
    assert f"{SENTENCE} The folder is {folder}." in without_files.log(until=SENTENCE)
    pages = {"/": 200, "/sign-in": 200, "/explorer": 200, "/api/docs": 200, "/nothing": 404}
    pages |= {"/livez": 200, "/chain-connections": 200, "/chains.json": 200}
    assert {path: get(without_files, path).status_code for path in pages} == pages
    assert "Traceback" not in without_files.log(until="/chains.json")


@pytest.mark.long
def test_files_of_another_version_are_replaced_even_if_they_are_newer(settings, tmp_path):
    """A roll back collects files of the earlier version. Those of the next one may have been written before."""
    settings.STATIC_ROOT, settings.STORAGES = str(tmp_path), project.STORAGES
    other = tmp_path / "site.css"
    other.write_text("/* of another version */")
    os.utime(other, (time.time() + 60, time.time() + 60))
    call_command("collectstatic", "--no-input", verbosity=0)
    assert other.read_bytes() == (PROJECT / "static" / "site.css").read_bytes()


@pytest.mark.long
def test_files_that_are_collected_later_help_after_a_restart(tmp_path):
    folder = tmp_path / "collected"
    with serving(tmp_path, static=str(folder)) as server:
        folder.symlink_to(fresh_installation(tmp_path).static)
        assert get(server, "/readyz").status_code == 503
        server.installation.process("web").send(signal.SIGHUP)
        deadline = time.monotonic() + ANSWER_SECONDS
        while get(server, "/readyz").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        (style,) = {*re.findall(r"/static/site\.\w+\.css", get(server, "/").text)}
        assert get(server, style).status_code == 200


def without_entry(manifest: Path, name: str) -> None:
    document = json.loads(manifest.read_text())
    del document["paths"][name]
    manifest.write_text(json.dumps(document))


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "staticfiles.json").unlink(),
        lambda folder: (folder / "js" / "live.js").unlink(),
        lambda folder: (folder / "site.css").write_text("/* of another version */"),
        lambda folder: (folder / "admin" / "css" / "base.css").write_text(""),
        lambda folder: os.truncate(folder / "staticfiles.json", 1000),
        lambda folder: without_entry(folder / "staticfiles.json", "site.css"),
        lambda folder: next(folder.glob("site.????????????.css")).unlink(),
    ],
    ids=[
        "no manifest",
        "no script",
        "another style",
        "another Django",
        "half a manifest",
        "no entry",
        "no hashed style",
    ],
)
def test_files_of_another_version_are_reported(tmp_path, change: Callable[[Path], object]):
    folder = tmp_path / "collected"
    shutil.copytree(fresh_installation(tmp_path).static, folder)
    change(folder)
    with serving(tmp_path, static=str(folder)) as server:
        assert get(server, "/readyz").json()["problem"] == SENTENCE
        assert (get(server, "/readyz").status_code, get(server, "/").status_code) == (503, 200)


@pytest.mark.long
def test_collecting_again_replaces_half_a_manifest(settings, tmp_path):
    settings.STATIC_ROOT, settings.STORAGES = str(tmp_path), project.STORAGES
    manifest = tmp_path / "staticfiles.json"
    manifest.write_text('{"paths": {"site')
    call_command("collectstatic", "--no-input", verbosity=0)
    assert "site.css" in json.loads(manifest.read_text())["paths"]


@pytest.mark.long
def test_check_deploy_wants_the_database_and_the_files(tmp_path):
    def manage(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "STATE_DIR": str(tmp_path), "BASE_URL": "https://example.org"}
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, check=False, timeout=60)

    check = ("check", "--deploy", "--fail-level", "WARNING")
    before = manage(*check)
    assert (before.returncode, before.stderr) == (
        1,
        "CommandError: The database can't be opened: unable to open database file\n",
    )
    manage("migrate")
    without = manage(*check)
    assert without.returncode == 1
    assert f"(accounts.E004) {SENTENCE}\n\tHINT: The folder is {tmp_path / 'static'}." in without.stderr
    manage("collectstatic", "--no-input")
    assert manage(*check).returncode == 0
