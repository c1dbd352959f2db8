"""What people look at: pages that only read."""
