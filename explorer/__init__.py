"""Pages for people, proof bundles and the health check. They read what other apps write."""
