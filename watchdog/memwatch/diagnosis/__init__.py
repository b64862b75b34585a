"""Why memory grows: what the trainer's heap holds, read from outside."""
