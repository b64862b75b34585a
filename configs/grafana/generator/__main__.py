"""Write the dashboards."""

from __future__ import annotations

from pathlib import Path

from generator.dashboards import dashboards

FOLDER = Path(__file__).resolve().parents[1] / "dashboards"


def main() -> None:
    """The same files for the same registry."""
    for name, text in dashboards().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
