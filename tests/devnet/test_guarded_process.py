"""Child processes and how they end."""

import os

from devnet.guarded_process import GuardedProcess

# The shell ignores SIGTERM, and starts a child in its own process group.
STUBBORN = ("/bin/sh", "-c", "trap '' TERM; sleep 600 & echo $!; wait")


def test_a_killed_group_is_gone_at_once_and_stopping_it_after_that_is_harmless():
    read, write = os.pipe()
    with os.fdopen(write, "wb") as output:
        process = GuardedProcess(STUBBORN, env={"PATH": os.environ["PATH"]}, stdout=output, stop_seconds=600)
    with os.fdopen(read) as pipe:
        assert pipe.readline(), "both run"
        process.kill()
        assert pipe.read() == "", "the pipe ends with the last process of the group"
    assert process.has_ended()
    process.stop()
