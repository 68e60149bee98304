"""Claims: the partitions that members report as owned, read from Python objects and user data."""

from cpython.dict cimport PyDict_GetItemWithError, PyDict_Next
from cpython.ref cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE

from libc.string cimport memset

from kcore_ext.assign.containers cimport Memory, add_key, found, found_next, ints, nones, push, release, reserve, u64
from kcore_ext.assign.ids cimport big_endian_word, same_bytes
from kcore_ext.assign.model cimport Topics, as_number
from kcore_ext.assign.problem cimport Problem
from kcore_ext.assign.result cimport GroupAssignment

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL


cdef inline int _slot(PyObject* name) noexcept nogil:
    return <int>((<size_t>name >> 4) & (SEEN_TOPICS - 1))


cdef inline u64 _hash_name(const unsigned char* text, Py_ssize_t size) noexcept nogil:
    """Hashes a topic's name."""
    cdef u64 mix = <u64>size
    cdef Py_ssize_t at
    for at in range(0, size, 8):
        mix = (mix ^ big_endian_word(text, at, size)) * 0x9E3779B97F4A7C15ULL
        mix ^= mix >> 29
    return mix


cdef const char* _utf8(object key, Py_ssize_t* size) except NULL:
    """Returns a topic's name as UTF-8, in memory that the str owns; "" for an id or for text with lone surrogates."""
    if type(key) is str:
        try:
            return PyUnicode_AsUTF8AndSize(key, size)
        except UnicodeEncodeError:
            pass
    size[0] = 0
    return ""


cdef class ClaimReader:
    """A reader of claims, which are the partitions that members report as owned. It adds them to a `Problem`.

    It caches the table that translates the partition numbers of an earlier assignment to those of the `Problem`.
    """

    def __dealloc__(self):
        release(&self.memory)

    cdef int add(self, object owned, str member_id) except -1:
        """Appends the owned partitions of a member to the claims; ignores partitions that do not exist.

        `owned` maps each topic to its owned partitions. Raises ValueError for an invalid collection of partitions.
        """
        self.at = NULL
        try:
            if not isinstance(owned, dict):
                owned = dict(owned)
            if len(<dict>owned):
                self.add_all(<dict>owned)
        except (TypeError, ValueError, OverflowError) as error:
            topic = f": topic {<object>self.at!r}" if self.at != NULL else ""
            raise ValueError(f"member {member_id!r}{topic}: invalid partition numbers: {error}") from error
        return 0

    cdef int add_all(self, dict owned) except -1:
        cdef Py_ssize_t at = 0
        cdef PyObject* numbers
        cdef int t
        while PyDict_Next(owned, &at, &self.at, &numbers):
            t = self.topic(self.at)
            if t >= 0:
                self.add_numbers(t, <object>numbers)
        return 0

    cdef inline int topic(self, PyObject* name) except -2:
        """Returns the number that a topic has in the `Problem`; -1 if the `Problem` lacks the topic.

        `name` is the topic's key in `Topics`, or its name if the key is an id.

        The method compares object identities first, because the keys of an earlier assignment are the same objects.
        """
        cdef int slot = _slot(name)
        cdef PyObject* found
        if self.seen[slot] == name:
            return self.seen_topic[slot]
        found = PyDict_GetItemWithError(self.topics.index, <object>name)
        return -1 if found == NULL else self.local[<int>(<object>found)]

    cdef int topic_of_utf8(self, const unsigned char* name, Py_ssize_t size) except -2:
        """Returns the number of a topic like the method `topic`, but takes the topic's name as UTF-8 bytes."""
        cdef Topics topics = self.topics
        cdef const char* text
        cdef Py_ssize_t length
        cdef int t
        if not self.names_hashed:
            self.names_hashed = True
            for t in range(topics.count):
                text = _utf8(topics.ordered[t], &length)
                add_key(&self.memory, &self.name_hashes, _hash_name(<const unsigned char*>text, length))
        t = found(&self.name_hashes, _hash_name(name, size))
        while t >= 0:
            text = _utf8(topics.ordered[t], &length)
            if length == size and same_bytes(text, name, size):
                return self.local[t]
            t = found_next(&self.name_hashes, t)
        # The name is an alias, or has invalid UTF-8, which Java would replace.
        known = topics.index.get(name[:size].decode("utf-8", "replace"))
        return -1 if known is None else self.local[<int>known]

    cdef inline int add_numbers(self, int t, object numbers) except -1:
        cdef Problem p = self.problem
        cdef int first = p.first[t], count = p.first[t + 1] - first
        cdef long number
        cdef Py_ssize_t i
        if type(numbers) is not tuple:
            numbers = tuple(numbers)
        for i in range(PyTuple_GET_SIZE(numbers)):
            number = as_number(<object>PyTuple_GET_ITEM(numbers, i))
            # Kafka does not check the index and fails for a partition that no longer exists.
            if 0 <= number < count:
                push(&p.memory, &p.claims, first + <int>number)
        return 0

    cdef int add_row(self, GroupAssignment parent, int member) except -1:
        """Appends a member's partitions in an earlier assignment to the claims, without creating Python objects."""
        cdef Problem p = self.problem
        cdef int i, number, t = 0, move
        parent.need_rows()
        if parent is not self.parent:
            self.translate(parent)
        i = parent.row_first[member]
        if i < parent.row_first[member + 1]:
            reserve(&p.memory, &p.claims, p.partitions)
        while i < parent.row_first[member + 1]:
            number = parent.rows[i]
            t = parent.topic_at(number, t)
            move = self.table[2 * t]
            if move != GONE and number - parent.first[t] < self.table[2 * t + 1]:
                push(&p.memory, &p.claims, number + move)
            i += 1
        return 0

    cdef int add_user_data(self, bytes data) except -2:
        """Appends the claims in the user data of the sticky assignor.

        Returns the generation (version 1), or -1 for version 0 and for unreadable data. Unreadable data adds no claims.
        """
        cdef Problem p = self.problem
        cdef const unsigned char* at = data
        cdef Py_ssize_t left = len(data), size
        cdef Py_ssize_t kept = p.claims.size
        cdef int topics, count, number, t, here
        if left < 4:
            return -1
        topics = be32(at)
        at += 4
        left -= 4
        for _ in range(topics):
            size = (<Py_ssize_t>at[0] << 8) | at[1] if left >= 2 else 0x8000
            if size >= 0x8000 or left < 2 + size + 4:
                p.claims.size = kept
                return -1
            t = self.topic_of_utf8(at + 2, size)
            at += 2 + size
            count = be32(at)
            at += 4
            left -= 6 + size
            if count < 0 or left < 4 * <Py_ssize_t>count:
                p.claims.size = kept
                return -1
            here = p.first[t + 1] - p.first[t] if t >= 0 else 0
            for _ in range(count):
                number = be32(at)
                at += 4
                if 0 <= number < here:
                    push(&p.memory, &p.claims, p.first[t] + number)
            left -= 4 * <Py_ssize_t>count
        return be32(at) if left >= 4 else -1

    cdef int translate(self, GroupAssignment parent) except -1:
        """Fills `table`, which translates the partition numbers of an earlier assignment to those of the `Problem`.

        For each topic of `parent`, the table has two values: the difference between the new and the old number of each
        partition, and the topic's current partition count.
        """
        cdef Problem p = self.problem
        cdef int t, here
        self.parent = parent
        if parent.topic_count > self.table_room:
            self.table = ints(&self.memory, 2 * parent.topic_count)
            self.table_room = parent.topic_count
        for t in range(parent.topic_count):
            here = self.topic(PyTuple_GET_ITEM(parent.names, t))
            if here < 0:
                self.table[2 * t] = GONE
                self.table[2 * t + 1] = 0
            else:
                self.table[2 * t] = p.first[here] - parent.first[t]
                self.table[2 * t + 1] = p.first[here + 1] - p.first[here]
        return 0


cdef ClaimReader claim_reader(Problem problem, Topics topics, const int* local):
    """Returns a reader that appends to `problem.claims`.

    `local` has, for each topic of the problem, the topic's position in `topics`.
    """
    cdef ClaimReader out = ClaimReader.__new__(ClaimReader)
    cdef PyObject* name
    cdef int i, t, slot
    out.problem = problem
    out.topics = topics
    out.local = nones(&out.memory, topics.count)
    for i in range(problem.topics):
        out.local[local[i]] = i
    memset(out.seen, 0, sizeof(out.seen))
    for t in range(topics.count):
        name = PyTuple_GET_ITEM(topics.ordered, t)
        slot = _slot(name)
        out.seen[slot] = name
        out.seen_topic[slot] = out.local[t]
    return out
