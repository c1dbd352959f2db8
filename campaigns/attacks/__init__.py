"""What strangers, key holders, nodes and disks may do to a running service, and what must hold all the same."""
