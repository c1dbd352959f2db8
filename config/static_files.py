"""How collected static files are stored."""

from whitenoise.storage import CompressedManifestStaticFilesStorage


class StaticFilesStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # whitenoise has no types
    """Compressed, and named by their content also where one script imports another, so that each is loaded once.

    Django's `support_js_module_import_aggregation` would look for imports in the scripts of packages as well, whose
    comments show some of files that don't exist. This looks in the project's own alone.
    """

    patterns = (
        *CompressedManifestStaticFilesStorage.patterns,
        (
            "js/*.js",
            (
                (
                    r"""(?P<matched>import (?P<names>\{[^}]*\}) from "(?P<url>\./[^"]+)";)""",
                    'import %(names)s from "%(url)s";',
                ),
            ),
        ),
    )
