"""Real programs as the judge: libraries' own `fit`, `train`, `learn`, and public trainers, watched as a user does it.

Here are the programs and what is true of them (`catalogue`), how one is run and watched (`run`), and the tables of
docs/gallery/results.md (`table`). Nothing here replaces a part of memwatch: it runs as `python -m memwatch`.
Start reading at `run`.
"""
