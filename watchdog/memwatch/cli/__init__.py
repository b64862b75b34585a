"""The `memwatch` command: the argument parser in `main`, and one module for each command or group of commands.

May import everything below it; nothing imports it but `__main__`. Start reading in `main`, then `watch_serve_markers`.
"""
