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
# No other fast test proves batches, which a quarter of the service's lines are for.
WITH_A_CHAIN = {"test_reorgs.py"}
