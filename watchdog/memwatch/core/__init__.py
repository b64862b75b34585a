"""The pure part: records, the engine, the forecast, the decision, and the reasoning about leaks.

Imports the standard library only: no clock, file, thread, process or log. The same events give the same actions.
Start reading in `measurements` and `events` (the records), then `engine.engine` (their processing).
"""
