"""What `systemd-analyze security` counts against the unit, and what systemd/README.md says of each."""

from __future__ import annotations

import json
from pathlib import Path

from support.markdown import rows, section, words

SYSTEMD = Path(__file__).parents[2] / "systemd"
MOST = 2.0  # of 10
ANALYZE = "systemd-analyze security --offline=true --no-pager"


def counted(report: str) -> dict[str, str]:
    """The exposure of each line that is open, from --json=short."""
    return {line["name"]: line["exposure"] for line in json.loads(report) if line["exposure"]}


def explained() -> dict[str, str]:
    """The table of the README: line and exposure. Those without a reason are left out."""
    text = section((SYSTEMD / "README.md").read_text(), "What is open, and why")
    return {words(line)[0].replace("\\|", "|"): exposure for line, exposure, reason in rows(text) if reason}


def overall(text: str) -> float:
    """`→ Overall exposure level for memwatch@x.service: 1.9 OK`."""
    return float(text.rpartition("Overall exposure level for ")[2].split()[1])
