"""The version of the package, for components that send it to clients or users."""

from typing import Final

VERSION: Final = "0.1.0"
