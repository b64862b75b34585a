"""A recorded trace through the same engine as the live daemon."""
