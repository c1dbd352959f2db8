"""The incidents: how each begins and ends, and the codes by which `/healthz` must tell it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from signal import SIGCONT, SIGKILL, SIGSTOP

import psycopg

from campaigns.bodies import balances
from campaigns.chaos.engines import OLD_BLOCKS
from campaigns.chaos.load import DEAR_FEE
from campaigns.incidents.lies import lying
from campaigns.incidents.site import SIGNER, TOML, WORKER_NAMES, Site
from campaigns.incidents.watcher import NO_ANSWER
from demo.client import submit
from demo.installation import CHAIN_ID
from devnet.beacon_api import BeaconApi, BeaconBlock, BeaconNode
from devnet.devchain import ACCOUNTS
from devnet.ports import free_port

# A transaction that isn't mined is nothing unusual before a minute and ten blocks (docs/operating/configuration.md), so
# a node that alone knows better is doubted only then.
_UNMINED_SECONDS = 90
_AWAY = ("database_unavailable", NO_ANSWER)
# Until the first transactions of an incident are final, and a worker has observed the chain after that.
_FINAL_SECONDS = 100
_DEEP_REORG = 12
_GWEI = 10**9
# A base fee so far above the cap that no 30 empty blocks, each of which lowers it by an eighth, bring it below.
_DEAR = 100_000 * _GWEI
# The thief's price of a unit of gas, in wei. No transaction of the service replaces one that pays so much.
_THIEFS_PRICE = 1_000 * _GWEI
_NEXT_NONCE = ("eth_getTransactionCount", SIGNER, "latest")
_NEXT_WAITING = "SELECT nonce FROM proving_transaction WHERE state = 'PENDING' AND nonce = %d"
_SECONDS_OF_BACKUP = 15
# When an observation has told what a restored database lacks.
_FOREIGN_SECONDS = 60
_HISTORY_WINDOW = 9000
# Accounts of a batch whose proofs take more calldata than a batch of the load.
_LARGE_BATCH = 400
_BEACON_TOML = """
beacon_urls = ["%s"]
[chains.beacon_chain]
preset = "minimal"
genesis_time = 1
slot_seconds = 1
bellatrix = 0
capella = 0
deneb = 0
electra = 0
"""


@dataclass(frozen=True)
class Incident:
    description: str
    happens: Callable[[Site], AbstractContextManager[None]]
    """A context in which the incident lasts."""
    codes: Sequence[str] = ()
    """One of them must be told. Empty: other processes absorb it, so that nobody needs to act."""
    told_seconds: int = 30
    """When it must be told at the latest."""
    seconds: float = 12
    """How long it lasts at least."""
    not_codes: Sequence[str] = ()
    """None of them may be told. If there are some, and no `codes`, any others may be."""


# --- Processes --------------------------------------------------------------------------------------------------------


@contextmanager
def _killed(site: Site, *names: str) -> Iterator[None]:
    for name in names:
        site.service.kill(name)
    yield
    site.restart(*names)


@contextmanager
def _frozen(site: Site, *names: str) -> Iterator[None]:
    site.signal(SIGSTOP, names)
    yield
    site.signal(SIGCONT, names)


@contextmanager
def _only_one_frozen(site: Site) -> Iterator[None]:
    only, *others = WORKER_NAMES
    with _killed(site, *others), _frozen(site, only):
        yield


@contextmanager
def _skewed(site: Site, seconds: int) -> Iterator[None]:
    for name in WORKER_NAMES:
        site.service.kill(name)
        site.service.start(name, sys.executable, "-m", "campaigns.incidents.skewed_worker", str(seconds))
    yield
    site.restart(*WORKER_NAMES)


# --- The database -----------------------------------------------------------------------------------------------------


@contextmanager
def _database_killed(site: Site) -> Iterator[None]:
    site.postgres.kill()
    yield
    site.postgres.start()


@contextmanager
def _read_only(site: Site) -> Iterator[None]:
    site.execute("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
    yield
    site.execute("ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()")


@contextmanager
def _locked(site: Site) -> Iterator[None]:
    with psycopg.connect(site.postgres.url()) as console:
        console.execute("LOCK TABLE queries_batch IN EXCLUSIVE MODE")
        yield


@contextmanager
def _full(site: Site) -> Iterator[None]:
    filler = site.postgres.folder / "filler"
    with filler.open("wb", buffering=0) as file:
        with suppress(OSError):
            while True:
                file.write(bytes(2**16))
        yield
    filler.unlink()
    if site.postgres.has_ended():
        site.postgres.start()


@contextmanager
def _restored(site: Site) -> Iterator[None]:
    """Take a backup, stop everything some time later, and go on with the backup, as docs/operating/database.md says."""
    backup = site.service.folder / "backup"
    _run(site, "pg_dump", "--format=custom", f"--file={backup}", site.postgres.url())
    time.sleep(_SECONDS_OF_BACKUP)
    site.service.stop()
    yield
    site.expected.forget(site)
    site.execute("CREATE DATABASE restored TEMPLATE template0")
    options = ("--exit-on-error", "--single-transaction", "--no-owner")
    _run(site, "pg_restore", *options, f"--dbname={site.postgres.url('restored')}", str(backup))
    exchange = ("postgres RENAME TO broken", "restored RENAME TO postgres")
    site.execute(*(f"ALTER DATABASE {names}" for names in exchange), database="template1")
    site.restart("web", *WORKER_NAMES)
    site.expected.lose(site, site.load)
    # The operator knows why the backup lacks transactions.
    site.watcher.told(["foreign_transactions"], time.monotonic(), _FOREIGN_SECONDS)
    site.service.manage("resume", str(CHAIN_ID), "--signer", SIGNER)


def _run(site: Site, program: str, *arguments: str) -> None:
    subprocess.run([site.postgres.program(program), *arguments], check=True)


# --- The node and the chain -------------------------------------------------------------------------------------------


@contextmanager
def _node_down(site: Site) -> Iterator[None]:
    site.proxy.down()
    yield
    site.proxy.up()


@contextmanager
def _node(site: Site, lie: str) -> Iterator[None]:
    with lying(site.nodes[0], lie):
        yield
    # A worker has stopped the signer if it doubts the node (docs/operating/watching.md).
    site.service.manage("resume", str(CHAIN_ID), "--signer", SIGNER)


@contextmanager
def _slow_estimate(site: Site) -> Iterator[None]:
    """Submit a large batch whose transaction the node doesn't estimate."""
    accounts = [f"0x{number:040x}" for number in range(1, _LARGE_BATCH + 1)]
    with lying(site.nodes[0], "slow-estimate"):
        large = balances([OLD_BLOCKS - 1], accounts, fee=DEAR_FEE)
        site.load.answered.append(submit(site.base_url, site.load.key_of(0), large))
        yield


@contextmanager
def _without_beacon_node(site: Site) -> Iterator[None]:
    """Name a beacon node in chains.toml that comes up only at the end."""
    port, root = free_port(), bytes(32)
    beacon_node = _BEACON_TOML % f"http://127.0.0.1:{port}"
    site.configure((TOML % site.proxy.url).replace("[chains.signer]", f"{beacon_node}[chains.signer]"))
    site.restart(*WORKER_NAMES)
    yield
    node = BeaconNode(CHAIN_ID, roots={0: root}, blocks={root: BeaconBlock(0, 0, root, root, root)})
    # It serves until the command ends.
    BeaconApi(node, port=port).__enter__()


@contextmanager
def _reorganised(site: Site) -> Iterator[None]:
    site.chain.rpc("anvil_reorg", _DEEP_REORG, [])
    yield


@contextmanager
def _reorganised_by_liar(site: Site) -> Iterator[None]:
    with _node(site, "wavering"), _reorganised(site):
        yield


@contextmanager
def _dear(site: Site) -> Iterator[None]:
    site.chain.rpc("anvil_setNextBlockBaseFeePerGas", hex(_DEAR))
    yield
    site.chain.rpc("anvil_setNextBlockBaseFeePerGas", hex(_GWEI))


@contextmanager
def _robbed(site: Site, *, takes_waiting: bool) -> Iterator[None]:
    """Send with the signer's key, as a thief does, from an account that the node has unlocked.

    Its nonce is the next one, or that of the first waiting transaction, which it replaces.
    """
    stolen = {"from": SIGNER, "to": ACCOUNTS[0][0], "value": hex(1), "gasPrice": hex(_THIEFS_PRICE)}
    if takes_waiting:
        site.chain.rpc("evm_setIntervalMining", 0)
        while not (waiting := site.rows(_NEXT_WAITING % int(site.chain.rpc(*_NEXT_NONCE), 16))):
            time.sleep(0.1)
        stolen["nonce"] = hex(waiting[0][0])
    # Its nonce is in the chain, and its hash isn't on record.
    site.expected.forgotten.add(site.chain.rpc("eth_sendTransaction", stolen))
    site.chain.rpc("evm_setIntervalMining", 1)
    yield
    site.service.manage("resume", str(CHAIN_ID), "--signer", SIGNER)


# --- The operator -----------------------------------------------------------------------------------------------------


@contextmanager
def _stopped(site: Site) -> Iterator[None]:
    site.service.manage("stop", str(CHAIN_ID), "--reason", "A key may be in danger.")
    yield
    site.service.manage("resume", str(CHAIN_ID))


@contextmanager
def _wrong_file(site: Site) -> Iterator[None]:
    site.configure("[[chains]")
    for pid in site.pids("web")[1:]:
        os.kill(pid, SIGKILL)
    site.restart(*WORKER_NAMES)
    yield
    site.configure(TOML % site.proxy.url)
    # A worker that can't read the file has ended. A web server reads it again by itself.
    site.restart(*WORKER_NAMES)


@contextmanager
def _replaced(site: Site) -> Iterator[None]:
    """Begin to use a longer history, for which the registry must be replaced, while its transactions aren't final."""
    toml = (TOML % site.proxy.url).replace("[chains.signer]", f"history_window = {_HISTORY_WINDOW}\n[chains.signer]")
    site.configure(toml)
    site.restart("web", *WORKER_NAMES)
    yield
    site.service.manage("deploy_registry", str(CHAIN_ID), str(CHAIN_ID), "--replace")


INCIDENTS: Mapping[str, Incident] = {
    "worker-killed": Incident("one of three workers is killed", lambda site: _killed(site, WORKER_NAMES[0])),
    "workers-killed": Incident("all workers are killed", lambda site: _killed(site, *WORKER_NAMES), ["no_worker"]),
    "web-killed": Incident("the web server is killed", lambda site: _killed(site, "web"), [NO_ANSWER]),
    "database-killed": Incident("PostgreSQL is killed", _database_killed, _AWAY),
    "worker-frozen": Incident("one of three workers freezes", lambda site: _frozen(site, WORKER_NAMES[1]), seconds=30),
    "workers-frozen": Incident("all workers freeze", lambda site: _frozen(site, *WORKER_NAMES), ["no_worker"]),
    "only-worker-frozen": Incident("the only worker freezes", _only_one_frozen, ["no_worker"]),
    "web-frozen": Incident("the web server freezes", lambda site: _frozen(site, "web"), [NO_ANSWER]),
    "database-frozen": Incident("PostgreSQL freezes", lambda site: _frozen(site, "database"), _AWAY),
    "clock-ahead": Incident("the workers' clock is an hour ahead", partial(_skewed, seconds=3600), ["clock"]),
    "clock-behind": Incident("the workers' clock is an hour behind", partial(_skewed, seconds=-3600), ["clock"]),
    "read-only": Incident("PostgreSQL takes no writes, as after a fail-over", _read_only, ["storage"]),
    "locked": Incident("a console holds a lock of a table", _locked, ["storage"]),
    "full": Incident("the disk of PostgreSQL is full", _full, ["storage", *_AWAY]),
    "node-down": Incident("the node refuses connections", _node_down, ["chain_unavailable"]),
    "node-hanging": Incident("the node doesn't answer", partial(_node, lie="hanging"), ["chain_unavailable"]),
    "node-limited": Incident("the node answers 429", partial(_node, lie="limited"), ["chain_unavailable"]),
    "node-stale": Incident("the node lags by a minute", partial(_node, lie="stale"), ["head_went_back", "clock"]),
    "node-syncing": Incident("the node says that it syncs", partial(_node, lie="syncing"), ["node_syncing"]),
    "node-moved": Incident("the node is one of another chain", partial(_node, lie="chain-id"), ["wrong_chain"]),
    "false-proofs": Incident("the node sends false proofs", partial(_node, lie="proofs"), ["no_proofs"]),
    "hidden-receipts": Incident(
        "the node hides receipts",
        partial(_node, lie="hidden"),
        ["node_doubtful", "signer_waits"],
        _UNMINED_SECONDS,
        _FINAL_SECONDS,
        not_codes=["foreign_transactions"],
    ),
    "cheap-receipts": Incident("the node tells too little gas", partial(_node, lie="cheap"), ["node_doubtful"]),
    "nonce-ahead": Incident(
        "the node tells a nonce too high",
        partial(_node, lie="ahead"),
        ["nonce_gap", "signer_waits"],
        _UNMINED_SECONDS,
        _FINAL_SECONDS,
        not_codes=["foreign_transactions"],
    ),
    "swallowing": Incident(
        "the node loses transactions that it takes", partial(_node, lie="lost"), ["signer_waits"], _UNMINED_SECONDS
    ),
    "reorg": Incident(f"{_DEEP_REORG} blocks are replaced, where 2 confirmations count", _reorganised),
    "reorg-wavering": Incident(
        "meanwhile the node tells nonces and receipts, true and false by turns",
        _reorganised_by_liar,
        seconds=30,
        not_codes=["foreign_transactions"],
    ),
    "estimate-tiny": Incident("the node estimates 30,000 gas", partial(_node, lie="estimate"), seconds=30),
    "estimate-low": Incident("the node estimates 0.6 of the gas", partial(_node, lie="estimate-low"), seconds=30),
    "estimate-high": Incident("the node estimates 10 times the gas", partial(_node, lie="estimate-high"), seconds=30),
    "dear": Incident("gas costs more than the cap", _dear, ["signer_waits"]),
    "signer-empty": Incident("the signer is empty", partial(_node, lie="balance"), ["signer_unfunded"]),
    "estimate-slow": Incident("the node does not estimate one large transaction", _slow_estimate, ["node_fails"]),
    "beacon-down": Incident("the only beacon node is down", _without_beacon_node, ["no_beacon_node"]),
    "robbed": Incident(
        "a thief sends with the signer's key", partial(_robbed, takes_waiting=False), ["foreign_transactions"]
    ),
    "robbed-waiting": Incident(
        "a thief uses the nonce of a waiting batch", partial(_robbed, takes_waiting=True), ["foreign_transactions"]
    ),
    "stopped": Incident("the operator stops the signers", _stopped, ["signing_stopped"]),
    "wrong-file": Incident("chains.toml is wrong, and processes that read it start anew", _wrong_file, ["chains_file"]),
    "replaced": Incident("a registry is replaced under its transactions", _replaced, ["registry_refused"]),
    "restored": Incident(f"a backup of {_SECONDS_OF_BACKUP} s before is restored", _restored, [NO_ANSWER]),
}
"""Incidents by name, in the order in which they come."""

if os.geteuid():
    INCIDENTS = {name: incident for name, incident in INCIDENTS.items() if name != "full"}
