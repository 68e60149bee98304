"""Assignments as arrays, and the comparison of rows of two assignments."""

from kcore_ext.assign.containers cimport Memory, Scratch, copied, ints, release, zeros

cdef int GONE = -(1 << 30)


cdef class AssignedRows:
    """Documented in rows.pyi."""

    def __dealloc__(self):
        release(&self.memory)

    cdef int need_rows(self) except -1:
        """Sorts partitions by owner, once."""
        cdef int p, m, n
        cdef Scratch scratch
        cdef int* cursor
        if self.rows_ready:
            return 0
        n = <int>len(self.ids)
        self.row_first = zeros(&self.memory, n + 1)
        for p in range(self.partitions):
            if self.owner[p] >= 0:
                self.row_first[self.owner[p] + 1] += 1
        for m in range(n):
            self.row_first[m + 1] += self.row_first[m]
        self.rows = ints(&self.memory, self.row_first[n])
        scratch = Scratch.__new__(Scratch)
        cursor = copied(&scratch.memory, self.row_first, n)
        for p in range(self.partitions):
            m = self.owner[p]
            if m >= 0:
                self.rows[cursor[m]] = p
                cursor[m] += 1
        self.rows_ready = True
        return 0

    cdef int topic_at(self, int partition, int from_topic) noexcept:
        """Returns the topic to which a partition index belongs. The topic must not precede `from_topic`.

        Checks `from_topic` and the topic after it first, because callers visit partitions in ascending order.
        """
        cdef int low = from_topic, high, middle
        if partition < self.first[low + 1]:
            return low
        low += 1
        if partition < self.first[low + 1]:
            return low
        high = self.topic_count
        while high - low > 1:
            middle = (low + high) >> 1
            if self.first[middle] <= partition:
                low = middle
            else:
                high = middle
        return low

    cdef int position(self, str member_id) except -2:
        """Returns the index of a member's row; -1 if the assignment lacks the member."""
        if self.positions is None:
            self.positions = {name: i for i, name in enumerate(self.ids)}
        found = self.positions.get(member_id)
        return -1 if found is None else <int>found


cdef int* translation(AssignedRows source, AssignedRows target, Memory* memory) except NULL:
    """Computes, for each topic of `source`, the shift from its partition indices to those of `target`.

    The shift is GONE if `target` lacks the topic.
    """
    cdef int* out = ints(memory, source.topic_count)
    cdef dict where = {name: t for t, name in enumerate(target.names)}
    cdef int t, i
    for t in range(source.topic_count):
        found = where.get(source.names[t])
        if found is None:
            out[t] = GONE
        else:
            i = found
            out[t] = target.first[i] - source.first[t]
    return out


cdef bint same_row(AssignedRows a, int m, AssignedRows b, int q, const int* table) noexcept:
    """Returns True if row m of `a` and row q of `b` have the same partitions.

    `table` is the result of `translation` from `b` to `a`.
    """
    cdef int i = a.row_first[m], j = b.row_first[q], t = 0
    if a.row_first[m + 1] - i != b.row_first[q + 1] - j:
        return False
    if a.identity and b.identity and a.topics is b.topics:
        while i < a.row_first[m + 1]:
            if a.rows[i] != b.rows[j]:
                return False
            i += 1
            j += 1
        return True
    if i == a.row_first[m + 1]:
        return True
    while i < a.row_first[m + 1]:
        t = b.topic_at(b.rows[j], t)
        if table[t] == GONE or a.rows[i] != b.rows[j] + table[t]:
            return False
        i += 1
        j += 1
    return True
