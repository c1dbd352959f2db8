"""A check of the time limits behind a pooler, which this service can't set there (`config.database.postgresql`)."""

from django.db import connection

# Workers run under these limits too, so a statement may take longer than one of a web server without a pooler.
_LIMITS = {"lock_timeout": "5s", "idle_in_transaction_session_timeout": "5s", "statement_timeout": "30s"}


def problem() -> str:
    """Return a sentence about the time limits that the connections of a pooler lack. Empty if they have all.

    Raises `django.db.DatabaseError`.
    """
    if connection.vendor != "postgresql":
        return ""
    # If this is the process's first query, it is known only then whether there is a pooler.
    connection.ensure_connection()
    if not connection.settings_dict["DISABLE_SERVER_SIDE_CURSORS"]:
        return ""
    with connection.cursor() as cursor:
        sql = "SELECT name FROM unnest(%s::text[]) AS name WHERE current_setting(name) = '0'"
        cursor.execute(sql, [list(_LIMITS)])
        absent = [name for (name,) in cursor.fetchall()]
    if not absent:
        return ""
    statements = " ".join(f"ALTER ROLE CURRENT_USER SET {name} = '{_LIMITS[name]}';" for name in absent)
    lacking = " and no ".join(absent)
    return f"The pooler's connections to PostgreSQL have no {lacking}. Run {statements} Then restart the pooler."
