"""The heap of a running CPython, read from outside: no code runs in the trainer, and it is never stopped."""
