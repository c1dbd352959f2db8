"""Tests that `make test-fast` leaves out or runs by name, whether or not they start a process."""

# Browsers are started in other ways. The other tests are long even without processes.
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
# Batches go from submission to DONE on a chain. No other fast test runs a quarter of the service's lines.
WITH_A_CHAIN = {"test_reorgs.py"}
