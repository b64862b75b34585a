"""What is done to the trainer: the signal that is sent, and the user's command that is run on an interrupt.

Imports `core` and `errors` only. Start reading in `signal_sender`.
"""
