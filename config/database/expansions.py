"""Migrations that add to tables in use, while the earlier version runs.

A transaction that locked two tables could wait in a circle with the service's own transactions, and would keep readers
waiting for both. So each table is changed in a transaction of its own. It waits for the table's lock only briefly,
because the service's statements queue behind it, and tries again after a pause.
"""

import logging
import time
from itertools import groupby
from typing import Any, NoReturn

from django.db import OperationalError, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import AddField, AddIndex, Migration
from django.db.migrations.exceptions import IrreversibleError
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

logger = logging.getLogger(__name__)

# In PostgreSQL's words. The lock's timeout is shorter than that of the web server (`config.wsgi`). Django computes
# between a migration's statements, and a large table takes long.
TIME_LIMITS = (
    "SET LOCAL lock_timeout = '2s'; SET LOCAL statement_timeout = 0; "
    "SET LOCAL idle_in_transaction_session_timeout = '1min'"
)
_PAUSE_SECONDS = 10
# lock_not_available and deadlock_detected (https://www.postgresql.org/docs/current/errcodes-appendix.html).
_IN_USE = {"55P03", "40P01"}


class Expansion(Migration):
    """A migration whose operations follow one another table by table. A killed one goes on where it was."""

    atomic = False

    def apply(
        self,
        project_state: ProjectState,
        schema_editor: BaseDatabaseSchemaEditor,
        collect_sql: bool = False,  # noqa: FBT001, FBT002 (Django's)
    ) -> ProjectState:
        if collect_sql:
            return super().apply(project_state, schema_editor, collect_sql)
        for table, group in groupby(self.operations, key=lambda operation: getattr(operation, "model_name_lower", "")):
            operations = list(group)
            while (state := self._changed(table, operations, project_state.clone(), schema_editor)) is None:
                time.sleep(_PAUSE_SECONDS)
            project_state = state
        return project_state

    def unapply(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse. Raises `IrreversibleError`."""
        raise IrreversibleError(
            f"{self} can't be taken back, because that would drop what was written since. An earlier version runs with "
            "the database as it is: see 'Roll back' in docs/operating/upgrading.md."
        )

    def _changed(
        self, table: str, operations: list[Operation], state: ProjectState, schema_editor: BaseDatabaseSchemaEditor
    ) -> ProjectState | None:
        """Change one table, and return the state after that. None if the table is in use."""
        connection = schema_editor.connection
        try:
            with transaction.atomic(connection.alias):
                if connection.vendor == "postgresql":
                    schema_editor.execute(TIME_LIMITS, None)
                for operation in operations:
                    before = state.clone()
                    operation.state_forwards(self.app_label, state)
                    if not self._is_done(operation, state, schema_editor):
                        operation.database_forwards(self.app_label, schema_editor, before, state)
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) not in _IN_USE:
                raise
            logger.warning("the table of %s is in use, and is tried again in %s s: %s", table, _PAUSE_SECONDS, error)
            return None
        return state

    def _is_done(self, operation: Any, state: ProjectState, schema_editor: BaseDatabaseSchemaEditor) -> bool:
        """Return whether the table has the column or the index. Other changes can be made twice."""
        if not isinstance(operation, AddField | AddIndex):
            return False
        model = state.apps.get_model(self.app_label, operation.model_name)
        introspection, table = schema_editor.connection.introspection, model._meta.db_table
        with schema_editor.connection.cursor() as cursor:
            if isinstance(operation, AddIndex):
                return operation.index.name in introspection.get_constraints(cursor, table)
            column = model._meta.get_field(operation.name).column
            return column in {known.name for known in introspection.get_table_description(cursor, table)}
