"""Tests that `make test-fast` leaves out by name, and those that it keeps although they start a process."""

# Browsers aren't started by `subprocess`. The other tests are slow without processes, too.
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
# This test proves batches on a chain. A quarter of the service's lines are run by no other fast test.
WITH_A_CHAIN = {"test_reorgs.py"}
