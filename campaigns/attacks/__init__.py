"""Attacks on a running service by strangers, key holders, nodes and full disks. The service must keep its promises."""
