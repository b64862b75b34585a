"""What memwatch does to a trainer: signals, and the evidence that they worked."""
