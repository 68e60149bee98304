"""Checker of an LMDB file: reads and checks every page."""

def check_trees(
    fd: int,
    page_size: int,
    last_page: int,
    free: bytes,
    main: bytes,
    file_size: int,
    max_leaves: int,
    deep: bool,
    max_ms: int = 0,
) -> int:
    """Checks every tree of an LMDB file: bounds, levels, order of keys, counts of entries, and the lists of free pages.

    Args:
        fd: the open file, which no process may write during the check.
        page_size: the size of a page, in bytes.
        last_page: the number of the last page according to the meta page.
        free: the meta page's record of the list of free pages (48 bytes).
        main: the meta page's record of the main database (48 bytes).
        file_size: the size of the file, in bytes.
        max_leaves: the maximum number of leaf pages of named databases to read.
        max_ms: the approximate time after which no more leaf pages of named databases are read; 0: no limit.
        deep: True to read also the first page of each value that is stored in separate pages.

    Returns:
        The number of pages in use; negative if `max_leaves` or `max_ms` was too small.

    Raises:
        ValueError: a page is damaged; the message names it.
    """
