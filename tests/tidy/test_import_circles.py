"""No module of `kcore` imports itself through other modules when it is loaded.

Imports for type checkers alone and imports within functions do not count. Packages are left out: a submodule needs its
package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.tidy.rules import ROOT, text_of, tracked_files


def modules() -> dict[str, Path]:
    """Returns the file of each module, by the module's name."""
    paths = [path.relative_to(ROOT) for path in tracked_files(".py")]
    own = [path for path in paths if path.parts[0] == "kcore" and path.name != "__init__.py"]
    return {".".join(path.with_suffix("").parts): ROOT / path for path in own}


def loaded_imports(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yields the names that the statements of a module import when it is loaded."""
    for node in body:
        if isinstance(node, ast.If):
            if "TYPE_CHECKING" not in ast.unparse(node.test):
                yield from loaded_imports(node.body)
            yield from loaded_imports(node.orelse)
        elif isinstance(node, ast.Try):
            yield from loaded_imports([*node.body, *node.orelse, *node.finalbody])
            for handler in node.handlers:
                yield from loaded_imports(handler.body)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Returns the modules of an import circle; [] if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself() -> None:
    files = modules()
    graph = {name: set(loaded_imports(ast.parse(text_of(path)).body)) & files.keys() for name, path in files.items()}
    assert sum(map(len, graph.values())) > 2_000
    assert circle(graph) == []


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert set(circle(graph)) == {"a", "b", "c"}
    source = "if TYPE_CHECKING:\n    import y\nelse:\n    from z import w\ntry:\n    import v\nexcept E:\n    import u"
    assert set(loaded_imports(ast.parse(source).body)) == {"z", "z.w", "v", "u"}
