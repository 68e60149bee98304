"""The version of the package, for what names itself to others."""

from typing import Final

VERSION: Final = "0.1.0"
