"""memwatch: an out-of-process memory watchdog for training runs."""

__version__ = "0.1.0"
