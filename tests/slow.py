"""What `make test-fast` leaves out by its name, and not because a test starts a process."""

# A browser is started in ways of its own. The others need no process everywhere, but long all the same.
SLOW = {"browser", "contracts", "upgrades", "test_nasty_bodies.py", "test_no_key_anywhere.py", "test_room.py"}
