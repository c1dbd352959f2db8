"""What proving costs: estimates, the shares of batches, and the limits that hold for them."""
