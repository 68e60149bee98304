"""Writes `kcore/errors/by_code.py`, which has one exception class per error code, or checks that the file is up to
date.

python tools/generate_errors.py            writes the file
python tools/generate_errors.py --check    fails if the file is stale
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kcore.errors import class_name
from kcore.protocol.error_codes import RETRIABLE, ErrorCode

TARGET = Path(__file__).resolve().parent.parent / "kcore" / "errors" / "by_code.py"

HEAD = '''"""One exception class per error code of Kafka. Made by tools/generate_errors.py from `ErrorCode`."""

from __future__ import annotations

from typing import ClassVar, Final

from kcore.errors import KafkaError
from kcore.protocol.error_codes import ErrorCode


class _CodedError(KafkaError):
    """The base of the classes below: an error whose class determines its code."""

    CODE: ClassVar[ErrorCode]

    def __init__(self, message: str | None = None) -> None:
        super().__init__(self.CODE, message)
        self.args = (message,)
'''

CLASS = '''

class {name}(_CodedError):
    """{code_name}, code {code}, {kind}.

    {message}
    """

    CODE = ErrorCode.{code_name}
'''

TAIL = '''

BY_CODE: Final[dict[int, type[_CodedError]]] = {{
{rows}
}}
"""Error code -> class."""
'''


def render() -> str:
    """Returns the source text of the module with one exception class for each error code."""
    codes = [code for code in ErrorCode if code != ErrorCode.NONE]
    classes = [
        CLASS.format(
            name=class_name(code),
            message=code.message,
            code=int(code),
            code_name=code.name,
            kind="retriable" if code in RETRIABLE else "not retriable",
        )
        for code in codes
    ]
    rows = "\n".join(f"    {int(code)}: {class_name(code)}," for code in codes)
    return HEAD + "".join(classes) + TAIL.format(rows=rows)


def main() -> int:
    """Writes the generated module. With `--check`, only compares it with the existing file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    text = render()
    if not parser.parse_args().check:
        TARGET.write_text(text)
    elif not TARGET.exists() or TARGET.read_text() != text:
        print(f"{TARGET.name} is stale: run python tools/generate_errors.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
