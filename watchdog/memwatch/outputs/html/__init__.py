"""HTML pages: the status page, the report of a run, the comparison of two, a replay.

Start reading in `report_page`; `html_document` escapes all text.
"""
