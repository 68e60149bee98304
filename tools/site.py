"""Builds the documentation site into `build/site`: pages of `docs/`, the examples, and the reference of the Python API.

    python -m tools.site

The pages stay as they are in the repository, where their links work, too. This program copies the pages into
`build/site-pages`, and changes each link to a file of the repository into a link to the page with its content. Then
it runs mkdocs, which reports every broken link.
"""

from __future__ import annotations

import ast
import os
import posixpath
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.distributions import ROOT, Environment, extra

PAGES = ROOT / "build" / "site-pages"
SITE = ROOT / "build" / "site"
TOP_LEVEL = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE")
BENCHMARKS = ("bench/peers/README.md", "bench/peers/load/README.md", "bench/baseline.json")
"""Files of the benchmarks that the site contains, because pages link to them."""
EXAMPLES_INDEX = "examples/README.md"

LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
"""A pattern for the target of a link to a file. The second group is the fragment."""

FENCE = re.compile(r"^( *```.*?^ *```[^\n]*$)", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".java": "java", ".go": "go", ".js": "javascript", ".json": "json", ".xml": "xml"}

REFERENCE = {
    "kcore": (
        "The functions that open nodes, and the classes of the API for threads. Every class has an asynchronous"
        " counterpart, named `Async…`, with the same methods; [the guide](../python-api.md) describes both.",
        (
            ("kcore", "open connect open_async connect_async Node EmbeddedNode ClusteredNode Listening"),
            ("kcore", "Topics Topic Groups Group Member Consumer Queue Job Producer Delivery"),
            ("kcore.node._sync.transactional_producer", "TransactionalProducer"),
            ("kcore", "Transaction Transactions Users Acls Quotas Brokers ClusterBroker"),
            ("kcore", "Record ProducerRecord RecordMetadata OffsetAndMetadata GroupMetadata TopicPartition"),
            ("kcore", "Assigned Revoked Lost"),
            ("kcore", "TopicDescription TopicListing PartitionDescription"),
            ("kcore", "GroupDescription GroupListing MemberDescription SharePosition Tasks Topology"),
            ("kcore", "TransactionDescription TransactionListing ProducerState"),
            ("kcore", "Acl QuotaEntity ClusterDescription BrokerDescription LogDirectory"),
            ("kcore", "ConsumerInterceptor ProducerInterceptor Config ManualClock SyncEngine AsyncEngine"),
        ),
    ),
    "errors": (
        "The exceptions that kcore raises. There is a subclass of `KafkaError` for each error code.",
        (("kcore", "errors"),),
    ),
    "assignors": (
        "[The guide](../assignors.md) describes the assignors and their speed.",
        (("kcore", "assignors"),),
    ),
    "testing": (
        "[The guide](../testing-kafka-code.md) describes their use.",
        (
            ("kcore.testing", "Broker VirtualNode VirtualTimeLoop ServerProcess TestGroups TestGroup replay"),
            ("kcore.testing", "Fault ActiveFault RandomFaults Filter HeldRequest"),
            ("kcore.testing", "History Event Ownership GroupSnapshot MemberState"),
        ),
    ),
}
"""Page of the reference -> its introduction, and pairs of a module and the names that the page documents."""


def documented(page: str) -> list[str]:
    """Lists the names on a page of the reference, with their modules."""
    return [f"{module}.{name}" for module, names in REFERENCE[page][1] for name in names.split()]


def example_files() -> list[str]:
    """Lists the examples, as paths below the checkout."""
    command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "examples"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    left_out = {EXAMPLES_INDEX, "examples/bugs/__init__.py"}
    return sorted(name for name in names if name not in left_out and not name.endswith(("go.sum", "package-lock.json")))


def site_paths() -> dict[str, str]:
    """Returns the path in the site of each file, and each folder of examples, that the site contains."""
    paths = {name: name for name in (*TOP_LEVEL, *BENCHMARKS)}
    paths["README.md"] = "index.md"
    paths[EXAMPLES_INDEX] = "examples/index.md"
    docs = ROOT / "docs"
    paths |= {
        str(path.relative_to(ROOT)): str(path.relative_to(docs))
        for path in docs.rglob("*")
        if path.is_file() and path.name != "mkdocs.yml"
    }
    for name in example_files():
        paths[name] = f"{name}.md"
        for folder in Path(name).parents[:-1]:
            paths[folder.as_posix()] = "examples/index.md"
    return paths


def with_links_of_the_site(text: str, name: str, paths: dict[str, str]) -> str:
    """Changes the links of a page to files of the repository into links to pages of the site.

    Args:
        text: the page.
        name: the path of the page below the checkout.
        paths: the result of `site_paths`.

    Raises:
        ValueError: the site does not have the target of a link.
    """

    def changed(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), match[1]))
        if target not in paths:
            raise ValueError(f"{name}: the site has no page for {match[1]}; tools/site.py names its files")
        return posixpath.relpath(paths[target], posixpath.dirname(paths[name]) or ".") + (match[2] or "")

    parts = FENCE.split(text)
    parts[::2] = [LINK.sub(changed, part) for part in parts[::2]]
    return "".join(parts)


def first_sentence(path: Path) -> str:
    """Returns the first line of the docstring of a Python file, or "" for other files."""
    if path.suffix != ".py":
        return ""
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]


def example_pages() -> Iterator[tuple[str, str]]:
    """Yields the path and the text of the page of each example, and of their index. The index is `examples/README.md`
    with the files of each folder.
    """
    overview = with_links_of_the_site((ROOT / EXAMPLES_INDEX).read_text(), EXAMPLES_INDEX, site_paths())
    index = [overview.rstrip()]
    folder = "examples"
    for name in sorted(example_files(), key=lambda name: (posixpath.dirname(name), name)):
        path = ROOT / name
        if posixpath.dirname(name) != folder:
            folder = posixpath.dirname(name)
            index += ["", f"## {folder.removeprefix('examples/')}", ""]
        title, sentence = name.removeprefix("examples/"), first_sentence(path)
        if folder != "examples":
            index.append(f"- [{title}]({title}.md){f': {sentence}' if sentence else ''}")
        fence = f"``` {LANGUAGES.get(path.suffix, 'text')}\n{path.read_text().rstrip()}\n```\n"
        yield f"{name}.md", f"# {title}\n\n{fence}" if path.suffix != ".md" else path.read_text()
    yield "examples/index.md", "\n".join(index) + "\n"


def reference_pages() -> Iterator[tuple[str, str]]:
    """Yields the path and the text of the pages of the reference, which mkdocstrings fills from docstrings."""
    for name, (introduction, _) in REFERENCE.items():
        title = name if name == "kcore" else f"kcore.{name}"
        sections = "".join(f"\n::: {item}\n" for item in documented(name))
        yield f"reference/{name}.md", f"# {title}\n\n{introduction}\n{sections}"


def pages() -> Iterator[tuple[str, str]]:
    """Yields the path in the site and the text of every page.

    Raises:
        ValueError: a page has a link to a file that the site does not have.
    """
    paths = site_paths()
    for name, target in paths.items():
        if name.endswith(".md") and not name.startswith("examples/"):
            yield target, with_links_of_the_site((ROOT / name).read_text(), name, paths)
    yield from example_pages()
    yield from reference_pages()


def write_pages() -> None:
    """Writes the pages, and the other files to which they link, into `build/site-pages`."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for name, target in site_paths().items():
        if not name.startswith("examples"):
            (PAGES / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, PAGES / target)
    for name, text in pages():
        path = PAGES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main() -> None:
    """Builds the site. A broken link is an error."""
    write_pages()
    with tempfile.TemporaryDirectory() as folder:
        tools = Environment(Path(folder))
        tools.install(*extra("site"))
        command = [str(tools.bin / "mkdocs"), "build", "--quiet", "--clean", "--config-file", "docs/mkdocs.yml"]
        variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # pyproject.toml names the version
        subprocess.run(command, cwd=ROOT, env=variables, check=True)
    print(f"{(SITE / 'index.html').relative_to(ROOT)}: open it in a browser")


if __name__ == "__main__":
    main()
