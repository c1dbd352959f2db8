"""What `make test-fast` leaves out or runs by its name, and not because of whether a test starts a process."""

# A browser is started in ways of its own. The others need no process everywhere, but long all the same.
SLOW = {
    "browser",
    "contracts",
    "upgrades",
    "test_attestation.py",
    "test_hostile.py",
    "test_nasty_bodies.py",
    "test_no_key_anywhere.py",
    "test_no_key_leaks.py",
    "test_room.py",
    "test_sqlite_file.py",
    "test_unavailable.py",
}
# Batches go from their submission to DONE, on a chain: a quarter of the service's lines run in no other fast test.
WITH_A_CHAIN = {"test_reorgs.py"}
