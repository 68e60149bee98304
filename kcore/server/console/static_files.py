"""The files of the console's page."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

STATIC: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/console.css": ("console.css", "text/css; charset=utf-8"),
    "/console.js": ("console.js", "text/javascript; charset=utf-8"),
}
"""URL path -> file name and content type."""


@cache
def read_static(name: str) -> str:
    """Returns the text of a file. Reads each file only once."""
    return files("kcore.server.console").joinpath("static", name).read_text(encoding="utf-8")
