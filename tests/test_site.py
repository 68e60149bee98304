"""The pages of the documentation site, which `make site` builds. These tests check the parts that
do not need mkdocs.
"""

from __future__ import annotations

import importlib
import posixpath
import re
from functools import cache
from typing import get_origin

import pytest

from tools import site

LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(#[^)\s]+)?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@cache
def pages() -> dict[str, str]:
    return dict(site.pages())


def anchors_of(text: str) -> set[str]:
    """Returns the URL fragments that GitHub and the site generate for the headings of a page."""
    outside = "".join(site.FENCE.split(text)[::2])
    headings = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in HEADING.findall(outside))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_link_leads_to_a_page_and_a_heading() -> None:
    wrong = []
    files = {*pages(), *site.site_paths().values()}
    for name, text in pages().items():
        if not name.endswith(".md") or name.startswith("reference/"):
            continue
        for target, fragment in LINK.findall("".join(site.FENCE.split(text)[::2])):
            page = posixpath.normpath(posixpath.join(posixpath.dirname(name), target)) if target else name
            if page not in files or (fragment and fragment[1:] not in anchors_of(pages()[page])):
                wrong.append((name, target + fragment))
    assert wrong == []


def test_the_navigation_has_every_page_of_the_docs_folder() -> None:
    navigation = set(re.findall(r": (\S+\.md)$", (site.ROOT / "docs/mkdocs.yml").read_text(), re.MULTILINE))
    omitted = {name for name in pages() if name.startswith(("examples/", "bench/")) and name != "examples/index.md"}
    assert navigation == {name for name in pages() if name.endswith(".md")} - omitted


def test_every_name_of_the_reference_exists_and_has_a_docstring() -> None:
    for page in site.REFERENCE:
        for name in site.documented(page):
            try:
                documented = importlib.import_module(name)
            except ImportError:
                module, _, attribute = name.rpartition(".")
                documented = getattr(importlib.import_module(module), attribute)
            assert documented.__doc__, name


def test_the_reference_has_every_public_class_and_function_for_threads() -> None:
    kcore = importlib.import_module("kcore")
    documented = {name.removeprefix("kcore.") for name in site.documented("kcore")}
    twins = {name for name in kcore.__all__ if name.startswith("Async") and name != "AsyncEngine"}
    others = {name for name in kcore.__all__ if not callable(getattr(kcore, name)) or get_origin(getattr(kcore, name))}
    aliases = {"HeaderList", "Isolation", "MemberEvent", "MemberState", "Offsets", "Partition", "Protocol"}
    assert others == {"__version__", *aliases}
    # The page of errors has KafkaError, and PartitionDict is dict at run time.
    assert set(kcore.__all__) - twins - documented - others == {"KafkaError", "PartitionDict"}
    testing = importlib.import_module("kcore.testing")
    assert {f"kcore.testing.{name}" for name in testing.__all__} == set(site.documented("testing"))


def test_links_become_links_of_the_site_outside_of_code() -> None:
    paths = {"README.md": "index.md", "docs/a.md": "a.md", "examples/x": "examples/index.md"}
    text = "[r](../README.md#top) [x](../examples/x/) [w](https://a.example/b) [s](#here)\n```\n[c](c.md)\n```\n"
    changed = "[r](index.md#top) [x](examples/index.md) [w](https://a.example/b) [s](#here)\n```\n[c](c.md)\n```\n"
    assert site.with_links_of_the_site(text, "docs/a.md", paths) == changed


def test_a_link_to_a_file_that_the_site_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"docs/a\.md: the site has no page for \.\./kcore/x\.py"):
        site.with_links_of_the_site("[x](../kcore/x.py)", "docs/a.md", {"docs/a.md": "a.md"})
