"""This service's status and submission endpoints in FastAPI and SQLAlchemy, to compare the web server with.

The peer runs in a separate environment without this project. It looks up the key's hash, reads and writes the same rows
of the same database with the same SQLite settings, and counts the same limits. It validates requests only as far as its
answer needs, and lacks features such as a sentence for each fault.
"""

import hashlib
import json
import os
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from pydantic import BaseModel, Field
from sqlalchemy import Connection, MetaData, Row, create_engine, event, func, select, update
from sqlalchemy.dialects.sqlite import insert
from ulid import ULID

ENGINE = create_engine(f"sqlite:///{os.environ['SQLITE_FILE']}")
_OPEN = ("RECEIVED", "ACCEPTED", "IN_PROGRESS")
_MOST = 1_000_000_000
_MINUTE = timedelta(minutes=1)


@event.listens_for(ENGINE, "connect")
def _configure(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions are begun explicitly
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA busy_timeout=5000")


_TABLES = MetaData()
_TABLES.reflect(ENGINE)
KEYS, USERS, COUNTS = (_TABLES.tables[f"accounts_{name}"] for name in ("apikey", "user", "throttlecount"))
BATCHES, BLOCKS, QUERIES, STEPS = (_TABLES.tables[f"queries_{name}"] for name in ("batch", "block", "query", "step"))
# Values that the service writes into required columns before the real values are known.
_BLANK = {
    table: {
        column.name: "" if column.type.python_type is str else 0
        for column in table.columns
        if not column.nullable and not column.primary_key and not column.foreign_keys
    }
    for table in (BATCHES, BLOCKS, QUERIES, STEPS)
}

app = FastAPI()


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def _key(api_key: Annotated[str, Header()]) -> Row[Any]:
    digest = hashlib.sha256(api_key.encode()).hexdigest()
    statement = (
        select(KEYS.c.id, KEYS.c.user_id, KEYS.c.expires_at, USERS.c.address)
        .join(USERS)
        .where(KEYS.c.key_hash == digest, KEYS.c.revoked_at.is_(None))
    )
    with ENGINE.connect() as connection:
        key = connection.execute(statement).first()
    if key is None or (key.expires_at and key.expires_at <= _now()):
        raise HTTPException(401, "A valid API key is needed.")
    return key


Key = Annotated[Row[Any], Depends(_key)]


class Status(BaseModel):
    queryStatus: str


@app.get("/batch-query-status")
def batch_query_status(batchQueryId: str, key: Key) -> Status:
    query = select(BATCHES.c.status).where(BATCHES.c.id == batchQueryId, BATCHES.c.user_id == key.user_id)
    with ENGINE.connect() as connection:
        status = connection.execute(query).scalar()
    if status is None:
        raise HTTPException(404, "No query found")
    return Status(queryStatus="IN_PROGRESS" if status in _OPEN else status)


class Account(BaseModel):
    props: list[Literal["NONCE", "BALANCE", "STORAGE_ROOT", "CODE_HASH"]]
    slots: list[Annotated[str, Field(pattern="^0x[0-9a-fA-F]{1,64}$")]] = []


class AtBlock(BaseModel):
    accounts: dict[Annotated[str, Field(pattern="^0x[0-9a-fA-F]{40}$")], Account]


Decimal = Annotated[str, Field(pattern="^(0|[1-9][0-9]*)$")]
Selector = Annotated[str, Field(pattern="^block:(0|[1-9][0-9]*)$")]


class BatchRequest(BaseModel):
    destinationChainId: Decimal
    fee: Decimal
    data: dict[Decimal, dict[Selector, AtBlock]]


class Submitted(BaseModel):
    internalId: str


_BITS = {"NONCE": 1, "BALANCE": 2, "STORAGE_ROOT": 4, "CODE_HASH": 8}


async def _text(request: Request) -> bytes:
    text: bytes = await request.body()
    return text


@app.post("/submit-batch-query")
def submit_batch_query(batch: BatchRequest, text: Annotated[bytes, Depends(_text)], key: Key) -> Submitted:
    with ENGINE.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        _count(connection, f"submissions:{key.user_id}", 1)
        connection.commit()
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        batch_id = _store(connection, batch, text, key)
        connection.commit()
    return Submitted(internalId=batch_id)


def _store(connection: Connection, request: BatchRequest, text: bytes, key: Row[Any]) -> str:
    now, batch_id, destination = _now(), str(ULID()), int(request.destinationChainId)
    parts = [
        (int(source), int(selector.partition(":")[2]), address, account)
        for source, blocks in request.data.items()
        for selector, block in blocks.items()
        for address, account in block.accounts.items()
    ]
    _count(connection, f"submitted queries:{key.user_id}", len(parts))
    sums = select(func.count(), func.sum(BATCHES.c.size), func.sum(BATCHES.c.block_count))
    of_user = sums.where(BATCHES.c.user_id == key.user_id, BATCHES.c.status.in_(_OPEN))
    if any((open_now or 0) > _MOST for open_now in connection.execute(of_user).one()):
        raise HTTPException(429, "You have too much.")
    connection.execute(
        insert(BATCHES),
        {
            **_BLANK[BATCHES],
            "id": batch_id,
            "user_id": key.user_id,
            "api_key_id": key.id,
            "destination_chain_id": destination,
            "fee": f"{int(request.fee):064x}",
            "request": text.decode(),
            "size": len(parts),
            "block_count": len({part[:2] for part in parts}),
            "status": "RECEIVED",
            "created_at": now,
            "deadline_at": now + timedelta(days=1),
            "due_at": now,
            "spent": f"{0:064x}",
        },
    )
    places: dict[tuple[int, int], int] = {}
    for source, number in {part[:2] for part in parts}:
        row = {"destination_chain_id": destination, "source_chain_id": source, "number": number}
        connection.execute(insert(BLOCKS).on_conflict_do_nothing(), {**_BLANK[BLOCKS], **row, "queue_at": now})
        same = [BLOCKS.c[name] == value for name, value in row.items()]
        places[source, number] = connection.execute(select(BLOCKS.c.id).where(*same)).scalar_one()
    rows = [
        {
            **_BLANK[QUERIES],
            "batch_id": batch_id,
            "source_chain_id": source,
            "block_id": places[source, number],
            "position": position,
            "address": address,
            "fields": sum(_BITS[name] for name in set(account.props)),
            "slots": json.dumps(account.slots),
            "step": "INITIAL_STATE",
        }
        for position, (source, number, address, account) in enumerate(parts)
    ]
    connection.execute(insert(QUERIES), rows)
    ids = connection.execute(select(QUERIES.c.id).where(QUERIES.c.batch_id == batch_id)).scalars()
    step = {**_BLANK[STEPS], "kind": "INITIAL_STATE", "status": "IN_PROGRESS", "started_at": now}
    connection.execute(insert(STEPS), [{**step, "query_id": query_id} for query_id in ids])
    return batch_id


def _count(connection: Connection, what_and_who: str, amount: int) -> None:
    """Count `amount` against a limit per minute. Raise `HTTPException` if the limit is exceeded."""
    now = _now()
    row = connection.execute(select(COUNTS).where(COUNTS.c.what_and_who == what_and_who)).first()
    if row is None or row.began_at <= now - _MINUTE:
        fresh = insert(COUNTS).values(what_and_who=what_and_who, began_at=now, used=amount)
        again = {"began_at": now, "used": amount}
        connection.execute(fresh.on_conflict_do_update(index_elements=["what_and_who"], set_=again))
        return
    if row.used + amount > _MOST:
        raise HTTPException(429, "You may submit less in a minute.")
    same = update(COUNTS).where(COUNTS.c.what_and_who == what_and_who)
    connection.execute(same.values(used=COUNTS.c.used + amount))
