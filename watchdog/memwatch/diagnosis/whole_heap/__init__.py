"""All objects of the heap of a running CPython, as arrays of NumPy; how single ones are read is in `diagnosis.heap`.

Only the short-lived process that examines a trainer comes in here. Start reading in `object_census`, then
`gc_object_scan` (tracked objects), `reachable_objects` (all others), and `reference_paths` (what holds them).
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # or NumPy starts threads for linear algebra
