"""All objects of the heap of a running CPython, as arrays: what one reads of single objects comes from `diagnosis.heap`.

Imports NumPy: only the short-lived process that examines a trainer comes in here. Start reading in `object_census`, then
`gc_object_scan` (tracked objects), `reachable_objects` (all others), and `reference_paths` (what holds them).
"""
