"""What others are told of batches. It loads nothing, because `proving` connects to it at each start."""

from django.dispatch import Signal

stored = Signal()
"""Sent with the `batch` when it is committed. A receiver must neither fail nor take time: a client waits."""
