"""The hashes that this attester has signed."""

from typing import ClassVar

from django.db import models


class SignedBlock(models.Model):
    """The only hash that this attester signs for a block's number. It is stored before the first signature, for ever.

    It is the same for every destination chain and contract, because there is only one truth about a source chain.
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
