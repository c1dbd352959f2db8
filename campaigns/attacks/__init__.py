"""Attacks by strangers, key holders, nodes and full disks on a running service, and the promises that must hold."""
