"""Text that several outputs share: tables of findings, the summary at the end, numbers and times.

Start reading in `exit_summary`.
"""
