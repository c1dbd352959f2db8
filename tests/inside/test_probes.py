"""`/readyz` while somebody migrates, by the lock that `migrate` holds."""

from django.db import connection, connections
from django.db.migrations.recorder import MigrationRecorder

from explorer.health import probes
from queries import schema


def test_it_is_not_ready_while_somebody_migrates(client, db, monkeypatch):
    """Whatever the tables are by then."""
    monkeypatch.setattr(probes, "_migrated", False)
    MigrationRecorder(connection).record_unapplied("queries", "0012_jumps")
    other = connections.create_connection("default")
    try:
        with schema.lock(other) as is_held:
            assert is_held
            said = "The database is being migrated: wait until manage.py migrate has ended."
            assert client.get("/readyz").json()["problem"] == said
        assert "has a column path_origin that no migration makes" in client.get("/readyz").json()["problem"]
    finally:
        other.close()
