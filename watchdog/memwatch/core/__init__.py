"""The pure core: events in, actions out. Standard library only; no clock, file, thread or log."""
