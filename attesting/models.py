"""The hashes that this attester has signed."""

from typing import ClassVar

from django.db import models


class SignedBlock(models.Model):
    """The only hash that this attester signs for a block number.

    It is stored before the first signature, and kept for ever.

    It applies to all destination chains and contracts, because a source chain has one final block for each number.
    """

    source_chain_id = models.PositiveBigIntegerField()
    number = models.PositiveBigIntegerField()
    hash = models.CharField(max_length=66)  # 0x and 64 hexadecimal digits
    signed_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["source_chain_id", "number"], name="one_hash_per_number")
        ]

    def __str__(self) -> str:
        return f"{self.hash} as block {self.number} of chain {self.source_chain_id}"
