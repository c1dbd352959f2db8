"""Static files as `manage.py collectstatic` stores them for production."""

import re

from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.management import call_command

from config import settings as project
from devnet.devchain import PROJECT


def test_a_script_imports_another_by_the_name_that_pages_load_it_by(settings, tmp_path):
    settings.STATIC_ROOT, settings.STORAGES = str(tmp_path), project.STORAGES
    call_command("collectstatic", "--no-input", verbosity=0)

    def stored(script: str) -> str:
        return staticfiles_storage.url(f"js/{script}").rpartition("/")[2]

    def imports(text: str) -> list[str]:
        return re.findall(r"""^import\b[^;]*["']\./(.*)["']""", text, re.MULTILINE)

    plain = {path.name: imports(path.read_text()) for path in (PROJECT / "static/js").glob("*.js")}
    assert plain["live.js"] == ["times.js"] != [stored("times.js")]
    for script, names in plain.items():
        assert imports((tmp_path / "js" / stored(script)).read_text()) == [stored(name) for name in names]


def test_idiomorph_is_what_the_npm_lock_pins():
    # It is kept here so that running the service needs no npm.
    ours = PROJECT / "static" / "idiomorph" / "idiomorph-ext.min.js"
    assert ours.read_bytes() == (PROJECT / "node_modules/idiomorph/dist" / ours.name).read_bytes()
