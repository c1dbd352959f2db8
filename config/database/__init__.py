"""SQL helpers, locks, due rows and bulk writes. This package doesn't know the service's models."""
