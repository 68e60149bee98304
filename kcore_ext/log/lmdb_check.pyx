"""Checker of an LMDB file: reads and checks every page.

LMDB itself aborts the process if a page is not of the kind that its parent expects. This checker walks the same trees
with bounds checks and raises ValueError instead. It supports the layout of LMDB 0.9 on 64-bit machines in native byte
order.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int CLOCK_MONOTONIC
    int clock_gettime(int clock, timespec* time)

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* buffer, size_t size, int64_t position)

cdef enum:
    PAGE_HEADER = 16
    NODE_HEADER = 8
    DB_SIZE = 48
    P_BRANCH = 0x01
    P_LEAF = 0x02
    P_OVERFLOW = 0x04
    F_BIGDATA = 0x01
    F_SUBDATA = 0x02
    MAX_DEPTH = 32
    MAX_KEY = 511
    INTEGER_KEYS = 0x08
    LEAVES_BETWEEN_CLOCK_READS = 256

cdef uint64_t NO_PAGE = <uint64_t>-1


cdef inline int64_t _now_ms() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1_000_000


cdef inline uint16_t _u16(const uint8_t* at) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, at, 2)
    return value


cdef inline uint32_t _u32(const uint8_t* at) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, at, 4)
    return value


cdef inline uint64_t _u64(const uint8_t* at) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, at, 8)
    return value


cdef class _Bound:
    """A separator key of a branch page: the lowest key of one child, greater than every key of the child before it."""

    cdef const uint8_t* data
    cdef Py_ssize_t size


cdef int _compare(const uint8_t* left, Py_ssize_t left_size, const uint8_t* right, Py_ssize_t right_size) noexcept nogil:
    cdef int order = memcmp(left, right, left_size if left_size < right_size else right_size)
    if order != 0:
        return order
    return 0 if left_size == right_size else (-1 if left_size < right_size else 1)


cdef class _Walk:
    """One walk over all trees of a file."""

    cdef int _fd
    cdef uint32_t _page_size
    cdef uint64_t _last_page
    cdef uint64_t _limit
    cdef uint64_t _left
    cdef int64_t _end_ms
    cdef bint _deep
    cdef bint _complete
    cdef uint8_t* _seen
    cdef uint8_t* _pages
    cdef list _databases
    cdef list _free
    cdef uint64_t _entries
    cdef uint64_t _count

    def __cinit__(
        self, int fd, uint32_t page_size, uint64_t last_page, uint64_t file_size, uint64_t max_leaves, bint deep,
        int64_t max_ms,
    ):
        self._fd = fd
        self._page_size = page_size
        self._last_page = last_page
        self._limit = min(last_page + 1, file_size // page_size)
        self._left = max_leaves
        self._end_ms = 0 if max_ms == 0 else _now_ms() + max_ms
        self._deep = deep
        self._complete = True
        self._databases = []
        self._free = []
        self._seen = <uint8_t*>PyMem_Calloc((self._limit >> 3) + 1, 1)
        self._pages = <uint8_t*>PyMem_Malloc(MAX_DEPTH * page_size)
        if self._seen is NULL or self._pages is NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self._seen)
        PyMem_Free(self._pages)

    cdef int _read(self, uint8_t* buffer, size_t size, uint64_t position) except -1:
        cdef ssize_t got
        cdef size_t done = 0
        while done < size:
            got = pread(self._fd, buffer + done, size - done, <int64_t>(position + done))
            if got < 0:
                if errno == EINTR:
                    continue
                raise ValueError(f"page {position // self._page_size} cannot be read: error {errno}")
            if got == 0:
                raise ValueError(f"page {position // self._page_size} lies after the end of the file")
            done += got
        return 0

    cdef int _mark(self, uint64_t page, uint64_t count) except -1:
        """Marks pages as used by one tree; raises ValueError if they are out of range or already used."""
        cdef uint64_t at
        if page < 2 or count > self._limit or page > self._limit - count:
            raise ValueError(f"page {page + count - 1} is needed, which lies outside")
        for at in range(page, page + count):
            if self._seen[at >> 3] & (1 << (at & 7)):
                raise ValueError(f"page {at} is referred to twice")
            self._seen[at >> 3] |= 1 << (at & 7)
        self._count += count
        return 0

    cdef int _tree(self, uint64_t page, int depth, int kind, int level, _Bound low, _Bound high) except -1:
        """Checks the tree below `page`, which must be `depth` levels high.

        `kind`: 0 for the list of free pages, 1 for the main database, 2 for a named one.
        """
        cdef uint8_t* data = self._pages + level * self._page_size
        cdef int flags
        self._mark(page, 1)
        if depth == 1 and kind == 2:
            if self._left == 0:
                self._complete = False
                return 0
            self._left -= 1
            if self._end_ms and self._left % LEAVES_BETWEEN_CLOCK_READS == 0 and _now_ms() >= self._end_ms:
                self._left = 0
        self._read(data, self._page_size, page * self._page_size)
        flags = _u16(data + 10)
        if _u64(data) != page or flags != (P_LEAF if depth == 1 else P_BRANCH):
            raise ValueError(f"page {page} is not a tree page of level {depth}")
        cdef uint32_t lower = _u16(data + 12)
        cdef uint32_t upper = _u16(data + 14)
        if self._page_size == 65536 and upper == 0:
            upper = 65536
        if not PAGE_HEADER + 2 <= lower <= upper <= self._page_size or lower & 1:
            raise ValueError(f"page {page} is not a tree page: its bounds are {lower} and {upper}")
        cdef int count = (lower - PAGE_HEADER) >> 1
        if depth > 1 and kind and count < 2:
            raise ValueError(f"page {page} is a branch page without children")
        return self._nodes(page, data, count, upper, depth, kind, level, low, high)

    cdef int _nodes(
        self, uint64_t page, uint8_t* data, int count, uint32_t upper, int depth, int kind, int level,
        _Bound low, _Bound high,
    ) except -1:
        cdef const uint8_t* before = NULL
        cdef Py_ssize_t before_size = 0
        cdef const uint8_t* node
        cdef uint32_t offset, size
        cdef int index
        cdef _Bound child_low
        cdef _Bound child_high = _Bound()
        cdef bint ordered
        for index in range(count):
            offset = _u16(data + PAGE_HEADER + 2 * index)
            if offset < upper or offset + NODE_HEADER > self._page_size:
                raise ValueError(f"page {page}: node {index} lies outside of the page")
            node = data + offset
            size = _u16(node + 6)
            if offset + NODE_HEADER + size > self._page_size or size > MAX_KEY:
                raise ValueError(f"page {page}: the key of node {index} lies outside of the page")
            # LMDB never reads the first key of a branch.
            if depth == 1 or index:
                if size == 0 or (kind == 0 and size != 8):
                    raise ValueError(f"page {page}: node {index} has a key of {size} bytes")
                if before is not NULL:
                    ordered = (_u64(before) < _u64(node + NODE_HEADER) if kind == 0
                               else _compare(before, before_size, node + NODE_HEADER, size) < 0)
                    if not ordered:
                        raise ValueError(f"page {page}: the keys of nodes {index - 1} and {index} are out of order")
                elif low is not None and kind and _compare(node + NODE_HEADER, size, low.data, low.size) < 0:
                    raise ValueError(f"page {page}: its first key belongs before it")
                before = node + NODE_HEADER
                before_size = size
        if before is not NULL and high is not None and kind and _compare(before, before_size, high.data, high.size) >= 0:
            raise ValueError(f"page {page}: its last key belongs after it")
        if depth == 1:
            for index in range(count):
                self._value(page, data, data + _u16(data + PAGE_HEADER + 2 * index), kind)
            self._entries += count
            return 0
        for index in range(count):
            node = data + _u16(data + PAGE_HEADER + 2 * index)
            child_low = low
            if index:
                child_low = _Bound()
                child_low.data = node + NODE_HEADER
                child_low.size = _u16(node + 6)
            child_high = high
            if index + 1 < count:
                child_high = _Bound()
                offset = _u16(data + PAGE_HEADER + 2 * (index + 1))
                child_high.data = data + offset + NODE_HEADER
                child_high.size = _u16(data + offset + 6)
            self._tree(
                <uint64_t>_u16(node) | <uint64_t>_u16(node + 2) << 16 | <uint64_t>_u16(node + 4) << 32,
                depth - 1, kind, level + 1, child_low, child_high,
            )
        return 0

    cdef int _value(self, uint64_t page, const uint8_t* data, const uint8_t* node, int kind) except -1:
        cdef uint32_t size = _u32(node)
        cdef int flags = _u16(node + 4)
        cdef const uint8_t* value = node + NODE_HEADER + _u16(node + 6)
        cdef Py_ssize_t room = (data + self._page_size) - value
        cdef bytes key = (<const char*>node)[NODE_HEADER : NODE_HEADER + _u16(node + 6)] if kind == 1 else b""
        cdef uint64_t first, pages
        cdef uint8_t header[PAGE_HEADER]
        # A file of another program may have plain values in its main database.
        if flags not in (0, F_BIGDATA) and (flags != F_SUBDATA or kind != 1):
            raise ValueError(f"page {page}: a node has flags {flags:#x}")
        if (8 if flags & F_BIGDATA else size) > room or (flags == F_SUBDATA and size != DB_SIZE):
            raise ValueError(f"page {page}: a value lies outside of the page")
        if flags == F_SUBDATA:
            self._databases.append((key, (<const char*>value)[:DB_SIZE]))
        elif flags == F_BIGDATA:
            first = _u64(value)
            pages = (PAGE_HEADER - 1 + <uint64_t>size) // self._page_size + 1
            self._mark(first, pages)
            if self._deep or kind == 0:
                self._read(header, PAGE_HEADER, first * self._page_size)
                if _u64(header) != first or _u16(header + 10) != P_OVERFLOW or _u32(header + 12) < pages:
                    raise ValueError(f"page {first} is not the first of {pages} overflow pages")
            if kind == 0:
                numbers = PyBytes_FromStringAndSize(NULL, size)
                self._read(<uint8_t*>PyBytes_AS_STRING(numbers), size, first * self._page_size + PAGE_HEADER)
                self._free.append(numbers)
        elif kind == 0:
            self._free.append((<const char*>value)[:size])
        return 0

    cdef int _free_pages(self) except -1:
        """Checks that no free page is in use, and that each list has a count and then page numbers in descending order."""
        cdef uint64_t count, index, number, before
        cdef const uint8_t* data
        for numbers in self._free:
            data = <const uint8_t*>PyBytes_AS_STRING(numbers)
            if len(numbers) < 8 or _u64(data) != <uint64_t>(len(numbers) >> 3) - 1 or len(numbers) & 7:
                raise ValueError("a list of free pages has the wrong size")
            count = _u64(data)
            before = self._last_page + 1
            for index in range(1, count + 1):
                number = _u64(data + 8 * index)
                if not 1 < number < before:
                    raise ValueError(f"page {number} follows page {before} in a list of free pages")
                before = number
                if number < self._limit:
                    if self._seen[number >> 3] & (1 << (number & 7)):
                        raise ValueError(f"page {number} is in use, and free")
                    self._seen[number >> 3] |= 1 << (number & 7)
        return 0

    cdef int _database(self, bytes record, int kind, str name) except -1:
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(record)
        cdef int depth = _u16(data + 6)
        cdef uint64_t entries = _u64(data + 32)
        cdef uint64_t root = _u64(data + 40)
        # LMDB aborts the process if the list of free pages has other flags. It refuses wrong flags of the main database.
        if _u16(data + 4) != (INTEGER_KEYS if kind == 0 else 0) and kind != 1:
            raise ValueError(f"{name} has flags {_u16(data + 4):#x}")
        if root == NO_PAGE:
            if depth or entries:
                raise ValueError(f"{name} has no root, but {entries} entries")
            return 0
        if not 0 < depth < MAX_DEPTH:
            raise ValueError(f"{name} has a depth of {depth}")
        self._entries = 0
        self._tree(root, depth, kind, 0, None, None)
        # LMDB does not keep the count of the list of free pages exactly.
        if kind and self._complete and self._entries != entries:
            raise ValueError(f"{name} has {self._entries} entries where {entries} are counted")
        return 0

    def run(self, bytes free, bytes main):
        self._database(free, 0, "the list of free pages")
        self._database(main, 1, "the main database")
        named, self._databases = self._databases, []
        for name, record in named:
            self._database(record, 2, f"database {name.decode('ascii', 'replace')}")
        if self._complete:
            self._free_pages()
        return self._count if self._complete else -<int64_t>self._count


def check_trees(int fd, uint32_t page_size, uint64_t last_page, bytes free, bytes main, uint64_t file_size,
                uint64_t max_leaves, bint deep, int64_t max_ms=0):
    """Documented in lmdb_check.pyi."""
    return _Walk(fd, page_size, last_page, file_size, max_leaves, deep, max_ms).run(free, main)
