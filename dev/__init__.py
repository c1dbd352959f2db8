"""Set-up, development chains and demos: all that runs the service beside its own commands."""
