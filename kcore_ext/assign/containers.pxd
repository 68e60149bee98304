"""Memory of the assignors: an arena, growing lists inside it, an index of 64-bit keys, and sorts.

A `Memory` owns all memory of a call or an object and is freed together with it, so no function frees memory. A list
that outgrows its block gets a new block of the arena; the unused old blocks of a list are together no larger than the
new block. The only error is MemoryError.
"""

from libc.string cimport memcpy, memset

ctypedef long long i64
ctypedef unsigned long long u64


cdef struct Block:
    Block* before


cdef struct Memory:
    Block* last
    char* at                       # free bytes of the last block
    size_t left
    size_t block_size


cdef struct IntVec:
    int* at
    Py_ssize_t size
    Py_ssize_t room


cdef struct LongVec:
    i64* at
    Py_ssize_t size
    Py_ssize_t room


cdef struct Index:
    # Numbers 64-bit keys 0, 1, 2, … in order of arrival; a key may occur several times, because it may be the hash of a
    # longer one.
    u64* keys                      # number -> key
    int* chain                     # number -> another number in the same slot, -1
    int* slots                     # 1 << (64 - shift), -1: empty
    int shift
    int room
    int count  # assigned numbers
    int unused  # released numbers, chained, -1: none


cdef inline u64 mixed(u64 mix, u64 word) noexcept nogil:
    """Adds a word to a hash: one step of FNV-1a."""
    return (mix ^ word) * 1099511628211ULL


cdef class Scratch:
    """Owner of the memory of one call, which is freed at the end of the call."""
    cdef Memory memory


cdef void* take_block(Memory* memory, size_t size) except NULL nogil
cdef void release(Memory* memory) noexcept nogil
cdef int grow_ints(Memory* memory, IntVec* list, Py_ssize_t room) except -1 nogil
cdef int grow_longs(Memory* memory, LongVec* list, Py_ssize_t room) except -1 nogil
cdef int grow_index(Memory* memory, Index* index, Py_ssize_t room) except -1 nogil
cdef void sort_ints(int* at, Py_ssize_t n) noexcept nogil
cdef void sort_longs(i64* at, Py_ssize_t n) noexcept nogil


cdef inline void* take(Memory* memory, size_t size) except NULL nogil:
    """Allocates `size` bytes, aligned for any type, uninitialised."""
    cdef char* out = memory.at
    # Room for one more entry, so that empty arrays have distinct addresses.
    size = (size | 15) + 1
    if size > memory.left:
        return take_block(memory, size)
    memory.at += size
    memory.left -= size
    return out


cdef inline int* ints(Memory* memory, Py_ssize_t n) except NULL nogil:
    """Allocates `n` ints, uninitialised."""
    return <int*>take(memory, <size_t>n * sizeof(int))


cdef inline void fill(int* at, Py_ssize_t n, int value) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        at[i] = value


cdef inline int* zeros(Memory* memory, Py_ssize_t n) except NULL nogil:
    cdef int* out = ints(memory, n)
    memset(out, 0, <size_t>n * sizeof(int))
    return out


cdef inline int* nones(Memory* memory, Py_ssize_t n) except NULL nogil:
    """Allocates `n` ints of value -1."""
    cdef int* out = ints(memory, n)
    memset(out, 255, <size_t>n * sizeof(int))
    return out


cdef inline int* copied(Memory* memory, const int* source, Py_ssize_t n) except NULL nogil:
    cdef int* out = ints(memory, n)
    if n:
        memcpy(out, source, <size_t>n * sizeof(int))
    return out


cdef inline char* flags(Memory* memory, Py_ssize_t n, bint value) except NULL nogil:
    """Allocates `n` one-byte booleans."""
    cdef char* out = <char*>take(memory, <size_t>n)
    memset(out, value, <size_t>n)
    return out


cdef inline i64* longs(Memory* memory, Py_ssize_t n) except NULL nogil:
    """Allocates `n` 64-bit numbers, uninitialised."""
    return <i64*>take(memory, <size_t>n * sizeof(i64))


cdef inline int reserve(Memory* memory, IntVec* list, Py_ssize_t room) except -1 nogil:
    """Makes room for `room` entries in total."""
    if room > list.room:
        grow_ints(memory, list, room)
    return 0


cdef inline int reserve_longs(Memory* memory, LongVec* list, Py_ssize_t room) except -1 nogil:
    if room > list.room:
        grow_longs(memory, list, room)
    return 0


cdef inline int push(Memory* memory, IntVec* list, int value) except -1 nogil:
    if list.size == list.room:
        grow_ints(memory, list, 2 * list.room + 8)
    list.at[list.size] = value
    list.size += 1
    return 0


cdef inline int push_long(Memory* memory, LongVec* list, i64 value) except -1 nogil:
    if list.size == list.room:
        grow_longs(memory, list, 2 * list.room + 8)
    list.at[list.size] = value
    list.size += 1
    return 0


cdef inline i64 pair(int first, int second) noexcept nogil:
    """Packs two numbers into one number that sorts like the pair; `second` must not be negative."""
    return <i64>((<u64>first << 32) | <u64>second)


cdef inline int first_of(i64 value) noexcept nogil:
    return <int>(value >> 32)


cdef inline int second_of(i64 value) noexcept nogil:
    return <int>(value & 0x7fffffff)


cdef inline int found(Index* index, u64 key) noexcept nogil:
    """Returns the number of an entry with the key; -1 if there is none."""
    cdef int number
    if index.room == 0:
        return -1
    number = index.slots[(key * <u64>0x9E3779B97F4A7C15) >> index.shift]
    while number >= 0 and index.keys[number] != key:
        number = index.chain[number]
    return number


cdef inline int found_next(Index* index, int number) noexcept nogil:
    """Returns the number of the next entry with the same key as entry `number`; -1 if there is none."""
    cdef u64 key = index.keys[number]
    number = index.chain[number]
    while number >= 0 and index.keys[number] != key:
        number = index.chain[number]
    return number


cdef inline int add_key(Memory* memory, Index* index, u64 key) except -1 nogil:
    """Adds an entry for a key, even if the key already has one; returns the number of the entry."""
    cdef int number, slot
    if index.room == 0 or (index.unused < 0 and index.count == index.room):
        grow_index(memory, index, 2 * index.room + 16)
    number = index.unused
    if number >= 0:
        index.unused = index.chain[number]
    else:
        number = index.count
        index.count += 1
    slot = <int>((key * <u64>0x9E3779B97F4A7C15) >> index.shift)
    index.keys[number] = key
    index.chain[number] = index.slots[slot]
    index.slots[slot] = number
    return number


cdef inline void drop_number(Index* index, int number) noexcept nogil:
    """Removes an entry; its number can be used for another entry."""
    cdef int* at = &index.slots[(index.keys[number] * <u64>0x9E3779B97F4A7C15) >> index.shift]
    while at[0] != number:
        at = &index.chain[at[0]]
    at[0] = index.chain[number]
    index.chain[number] = index.unused
    index.unused = number
