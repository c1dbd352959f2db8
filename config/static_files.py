"""How collected static files are stored."""

from whitenoise.storage import CompressedManifestStaticFilesStorage

_IMPORTS = (
    (
        r"""(?P<matched>import (?P<names>\{[^}]*\}) from "(?P<url>\.\.?/[^"]+)";)""",
        'import %(names)s from "%(url)s";',
    ),
    (r"""(?P<matched>import\("(?P<url>\./[^"]+)"\))""", 'import("%(url)s")'),
)


class StaticFilesStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # whitenoise has no types
    """Compressed files, named by their content even where one script imports another, so that each is loaded once.

    Django's `support_js_module_import_aggregation` would also look for imports in the scripts of packages, whose
    comments show imports of files that don't exist. This class looks only in the project's own folders.
    """

    patterns = (*CompressedManifestStaticFilesStorage.patterns, ("js/*.js", _IMPORTS), ("vendor/*.js", _IMPORTS))
