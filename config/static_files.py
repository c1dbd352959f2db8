"""The storage of collected static files, and a check that this version's files are collected."""

import filecmp
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles.apps import StaticFilesConfig
from django.contrib.staticfiles.finders import get_finders
from whitenoise.storage import CompressedManifestStaticFilesStorage

_IMPORTS = (
    (
        r"""(?P<matched>import (?P<names>\{[^}]*\}) from "(?P<url>\.\.?/[^"]+)";)""",
        'import %(names)s from "%(url)s";',
    ),
    (r"""(?P<matched>import\("(?P<url>\./[^"]+)"\))""", 'import("%(url)s")'),
)


class StaticFilesStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # whitenoise has no types
    """A storage of compressed files with a hash of their content in their names, also in imports between scripts.

    Django's `support_js_module_import_aggregation` would also process the scripts of packages, whose comments mention
    imports of files that don't exist. This class processes only the project's own folders.
    """

    def get_modified_time(self, name: str) -> datetime:
        """Return the beginning of time, so that `collectstatic` copies each file.

        It keeps a collected file that is newer. After a roll back that would be a file of another version.
        """
        return datetime.min.replace(tzinfo=UTC)

    def load_manifest(self) -> tuple[dict[str, str], str]:
        """Return what is collected, and a hash of it. Return nothing if no manifest can be read, as if there were none.

        So `collectstatic` replaces a manifest that was cut off.
        """
        try:
            return super().load_manifest()  # type: ignore[no-any-return]
        except (OSError, ValueError):
            return {}, ""

    def stored_name(self, name: str) -> str:
        """Return the file's name with its hash. Return the name itself if files are missing, so that pages work."""
        return name if problem() else str(super().stored_name(name))

    patterns = (*CompressedManifestStaticFilesStorage.patterns, ("js/*.js", _IMPORTS), ("vendor/*.js", _IMPORTS))


def problem() -> str:
    """Return a sentence if not all files of this version were collected when the process began. Otherwise, empty."""
    is_needed = settings.STORAGES["staticfiles"]["BACKEND"] == f"{__name__}.{StaticFilesStorage.__name__}"
    return _problem(Path(settings.STATIC_ROOT)) if is_needed and not settings.DEBUG else ""


@cache
def _problem(folder: Path) -> str:
    # A process reads the list of files once, so files that are collected later don't help it.
    if _are_collected(folder):
        return ""
    return (
        "The pages' files of this version are missing in STATE_DIR: run manage.py collectstatic with the web server's "
        "STATE_DIR, then restart the web server."
    )


def _are_collected(folder: Path) -> bool:
    stored = StaticFilesStorage(folder).hashed_files
    found = (each for finder in get_finders() for each in finder.list(StaticFilesConfig.ignore_patterns))
    try:
        return all(
            filecmp.cmp(storage.path(name), folder / name, shallow=False) and (folder / stored[name]).is_file()
            for name, storage in found
        )
    except (OSError, KeyError):
        return False
