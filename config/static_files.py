"""The storage of collected static files."""

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

    patterns = (*CompressedManifestStaticFilesStorage.patterns, ("js/*.js", _IMPORTS), ("vendor/*.js", _IMPORTS))
