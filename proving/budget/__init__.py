"""What may be spent: the limits, what is reserved, and what each batch pays."""
