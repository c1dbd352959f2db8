"""Set-up of the project, before anything is installed."""
