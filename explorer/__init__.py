"""Pages for people. They read what other apps write."""
