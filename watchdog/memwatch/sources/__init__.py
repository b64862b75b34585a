"""The world read into facts: each file has a read beside a pure parse."""
