"""What strangers, key holders, nodes, disks and clocks may do to a running service, and what must hold all the same."""
