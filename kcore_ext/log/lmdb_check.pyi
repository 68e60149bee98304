"""Checker of the pages of an LMDB file: reads them one by one, and trusts none of them."""

def check_trees(
    fd: int, page_size: int, last_page: int, free: bytes, main: bytes, file_size: int, max_leaves: int, deep: bool
) -> int:
    """Check every tree of an LMDB file: bounds, levels, order of keys, counts of entries, and the lists of free pages.

    Args:
        fd: the open file, which nothing writes meanwhile.
        page_size: bytes of a page.
        last_page: number of the last page that the meta page knows.
        free: the meta page's record of the list of free pages (48 bytes).
        main: the meta page's record of the main database (48 bytes).
        file_size: bytes of the file.
        max_leaves: the number of leaf pages of named databases to read at most.
        deep: also read the first page of each value that has pages of its own.

    Returns:
        The number of pages in use; negative if `max_leaves` did not suffice.

    Raises:
        ValueError: a page is damaged; the message says which one.
    """
