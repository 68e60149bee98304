"""Memory of the assignors: the functions that the `.pxd` does not define inline."""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    /* The sanitizer detects a write beyond an allocation only if each allocation has its own block. */
    #ifdef KCORE_SANITIZE
    #define KCORE_SHARES_BLOCKS 0
    #else
    #define KCORE_SHARES_BLOCKS 1
    #endif
    """
    const bint SHARES_BLOCKS "KCORE_SHARES_BLOCKS"

cdef enum:
    FIRST_BLOCK = 2048
    LARGEST_BLOCK = 1 << 20
    # Below this length an insertion sort is faster.
    FEW = 24


cdef class Scratch:
    def __dealloc__(self):
        release(&self.memory)


cdef void* take_block(Memory* memory, size_t size) except NULL nogil:
    """Allocates a block of at least `size` bytes.

    A large allocation gets a block of its own. Small allocations then continue in the earlier block.
    """
    cdef size_t here
    cdef Block* block
    if memory.block_size == 0:
        memory.block_size = FIRST_BLOCK
    here = memory.block_size if SHARES_BLOCKS and 4 * size <= memory.block_size else size
    block = <Block*>PyMem_RawMalloc(here + 16)
    if block == NULL:
        with gil:
            raise MemoryError()
    block.before = memory.last
    memory.last = block
    if here > size:
        memory.at = <char*>block + 16 + size
        memory.left = here - size
    if memory.block_size < LARGEST_BLOCK:
        memory.block_size *= 2
    return <char*>block + 16


cdef void release(Memory* memory) noexcept nogil:
    """Frees all blocks. The emptied `Memory` can be used again."""
    cdef Block* block = memory.last
    cdef Block* before
    while block != NULL:
        before = block.before
        PyMem_RawFree(block)
        block = before
    memset(memory, 0, sizeof(Memory))


cdef int grow_ints(Memory* memory, IntVec* list, Py_ssize_t room) except -1 nogil:
    cdef int* at = <int*>take(memory, <size_t>room * sizeof(int))
    if list.size:
        memcpy(at, list.at, <size_t>list.size * sizeof(int))
    list.at = at
    list.room = room
    return 0


cdef int grow_longs(Memory* memory, LongVec* list, Py_ssize_t room) except -1 nogil:
    cdef i64* at = <i64*>take(memory, <size_t>room * sizeof(i64))
    if list.size:
        memcpy(at, list.at, <size_t>list.size * sizeof(i64))
    list.at = at
    list.room = room
    return 0


cdef int grow_index(Memory* memory, Index* index, Py_ssize_t room) except -1 nogil:
    """Enlarges the index and rehashes all keys."""
    cdef u64* keys = <u64*>take(memory, <size_t>room * sizeof(u64))
    cdef int* chain = ints(memory, room)
    cdef int* slots
    cdef int number, slot, bits = 4
    if index.room == 0:
        index.unused = -1
    while bits < 30 and (1 << bits) < room:
        bits += 1
    slots = nones(memory, <Py_ssize_t>1 << bits)
    # All numbers are in use here, because released numbers are used again before the index grows.
    for number in range(index.count):
        keys[number] = index.keys[number]
        slot = <int>((keys[number] * <u64>0x9E3779B97F4A7C15) >> (64 - bits))
        chain[number] = slots[slot]
        slots[slot] = number
    index.keys = keys
    index.chain = chain
    index.slots = slots
    index.shift = 64 - bits
    index.room = <int>room
    return 0


ctypedef fused Number:
    int
    i64


cdef void _insertion(Number* at, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef Number value
    for i in range(1, n):
        value = at[i]
        j = i
        while j > 0 and at[j - 1] > value:
            at[j] = at[j - 1]
            j -= 1
        at[j] = value


cdef void _sift(Number* at, Py_ssize_t k, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t child
    cdef Number value = at[k]
    while 2 * k + 1 < n:
        child = 2 * k + 1
        if child + 1 < n and at[child + 1] > at[child]:
            child += 1
        if at[child] <= value:
            break
        at[k] = at[child]
        k = child
    at[k] = value


cdef void _heap_sort(Number* at, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef Number value
    for i in range(n // 2 - 1, -1, -1):
        _sift(at, i, n)
    for i in range(n - 1, 0, -1):
        value = at[0]
        at[0] = at[i]
        at[i] = value
        _sift(at, 0, i)


cdef inline Number _median(Number a, Number b, Number c) noexcept nogil:
    if a < b:
        return b if b < c else (c if a < c else a)
    return a if a < c else (c if b < c else b)


cdef void _quick_sort(Number* at, Py_ssize_t n, int depth) noexcept nogil:
    """Sorts by quicksort, and by heapsort after `depth` nested partitions, so that the worst case is n log n."""
    cdef Py_ssize_t i, j
    cdef Number pivot, value
    while n > FEW:
        if depth == 0:
            _heap_sort(at, n)
            return
        depth -= 1
        pivot = _median(at[0], at[n // 2], at[n - 1])
        i = 0
        j = n - 1
        while True:
            while at[i] < pivot:
                i += 1
            while at[j] > pivot:
                j -= 1
            if i >= j:
                break
            value = at[i]
            at[i] = at[j]
            at[j] = value
            i += 1
            j -= 1
        # Hoare's partition: at[:j + 1] <= pivot <= at[j + 1:], and neither part is empty.
        _quick_sort(at + j + 1, n - j - 1, depth)
        n = j + 1
    _insertion(at, n)


cdef void _sort(Number* at, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef int depth = 0
    for i in range(1, n):
        if at[i - 1] > at[i]:
            break
    else:
        return
    i = n
    while i:
        depth += 2
        i >>= 1
    _quick_sort(at, n, depth)


cdef void sort_ints(int* at, Py_ssize_t n) noexcept nogil:
    """Sorts in ascending order, in place."""
    _sort(at, n)


cdef void sort_longs(i64* at, Py_ssize_t n) noexcept nogil:
    """Sorts in ascending order, in place."""
    _sort(at, n)
