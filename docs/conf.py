"""The site, by Sphinx (`make site`): the pages as they stand in the checkout, README the first; a warning is an error.

Its root is the checkout, so that a link to another page, a picture or a configuration file is the same in both.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

HOME = "README"
DECISIONS = sorted(f"docs/decisions/{page.stem}" for page in Path(__file__).parent.glob("decisions/*.md"))
RESULTS = [f"docs/{of}/results" for of in ("performance", "trust", "gallery", "leak_reports")]
# Every page stands here once, in the order of reading; one that does not fails the build and tests/docs.
NAVIGATION = {
    "Begin": ["docs/tutorial", "docs/recipes", "docs/concepts", "examples/README"],
    "Understand": ["docs/diagnosis", "docs/forecasting", "docs/markers", "docs/reports"],
    "Operate": [
        *(
            "docs/configuration",
            "docs/operations",
            "docs/integrations",
            "docs/events",
            "docs/security",
            "systemd/README",
            "docs/kubernetes",
            "docs/node",
            "docs/ranks",
        ),
        *("docs/metrics", "configs/grafana/README", "docs/runbooks", "docs/faults", "docs/trust", "docs/gallery"),
    ],
    "Look up": ["docs/performance", *RESULTS, "docs/glossary", "SECURITY", "CHANGELOG"],
    "Contribute": ["CONTRIBUTING", "docs/architecture", *DECISIONS],
}

project = html_title = "memwatch"
root_doc = HOME
include_patterns = ["*.md", *(f"{folder}/**.md" for folder in ("configs", "docs", "examples", "systemd"))]
exclude_patterns = [".*", "site"]
extensions = ["myst_parser"]
myst_heading_anchors = 4  # headings are linked to by the names that tests/docs gives them
nitpicky = True
smartquotes = False  # what is a command stays one
highlight_language = "text"
html_theme = "furo"
html_copy_source = html_show_sourcelink = html_show_copyright = html_show_sphinx = html_use_index = False


def navigation() -> str:
    """The table of contents that the sidebar shows, as MyST."""
    parts = (
        "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"])
        for caption, pages in NAVIGATION.items()
    )
    return "\n\n" + "\n\n".join(parts) + "\n"


def setup(app: Sphinx) -> None:
    """README is the first page: it gets the table of contents, and the name by which servers know a first page."""

    def read(_app: Sphinx, name: str, source: list[str]) -> None:
        source[0] += navigation() if name == HOME else ""

    def finished(app: Sphinx, error: Exception | None) -> None:
        if error is None:
            shutil.copy(Path(app.outdir, f"{HOME}.html"), Path(app.outdir, "index.html"))

    app.connect("source-read", read)
    app.connect("build-finished", finished)
