"""Real parts that several tests share."""
