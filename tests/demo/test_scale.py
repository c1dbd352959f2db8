"""`make bench-scale` goes on where the service answers 503, as any client must."""

import sys
from contextlib import ExitStack

from campaigns.benchmarks.scale import Measured

# Stopped, it holds the lock of the database's writers as a worker does that is stopped in the middle of a write. It
# lets go when it may go on.
_HOLDER = """
import os, signal, sqlite3, time
database = sqlite3.connect(os.environ["STATE_DIR"] + "/db.sqlite3", isolation_level=None, timeout=60)
database.execute("BEGIN IMMEDIATE")
print("holds", flush=True)
def let_go(*_):
    database.execute("ROLLBACK")
    database.close()
signal.signal(signal.SIGCONT, let_go)
while True:
    time.sleep(60)
"""


def test_a_worker_that_is_stopped_in_the_middle_of_a_write_does_not_end_it():
    with ExitStack() as running:
        measured = Measured(running, "runworker-sqlite", 1, milliseconds=1)
        service = measured.service
        service.start("holder", sys.executable, "-c", _HOLDER)
        service.wait_until(lambda: service.log("holder").read_text() == "holds\n")
        measured.workers.append("holder")
        assert measured.prove(2, 1, 20) > 0
