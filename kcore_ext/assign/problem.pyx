"""The input of all assignors as arrays. A `Problem` describes the members and topics of one group."""

from libc.string cimport memcmp, memcpy, memset

from kcore_ext.assign.containers cimport (
    Index,
    Memory,
    add_key,
    copied,
    fill,
    flags,
    found,
    found_next,
    ints,
    mixed,
    nones,
    release,
    u64,
    zeros,
)

cdef object np = None


cdef int need_numpy() except -1:
    """Imports numpy at the first use of an array, because servers use no arrays, and the import costs 60 ms and
    15 MB.
    """
    global np
    if np is None:
        import numpy
        np = numpy
    return 0


cdef class Problem:
    """One group as arrays; the `.pxd` describes every field. Made by `from_arrays` or by `lower.lower`."""

    def __cinit__(self):
        self.equal = True
        self.homogeneous = True

    def __dealloc__(self):
        release(&self.memory)

    @staticmethod
    def from_arrays(topic_partitions, kind_of, kind_first, kind_topics, order=None, generations=None,
                    member_racks=None, rack_first=None, rack_list=None):
        """Builds a problem from numpy arrays, whose shapes `kcore.assignors.arrays.Group` describes. Raises ValueError.
        """
        cdef Problem p = Problem()
        cdef int i
        counts = _ints(topic_partitions, "topic_partitions")
        if counts.size and counts.min() < 0:
            raise ValueError(f"topic_partitions: {counts.min()} is negative; valid: the number of partitions, 0 or more")
        if int(counts.sum(dtype=np.int64)) > 2**31 - 2:
            raise ValueError(
                f"topic_partitions: {counts.sum(dtype=np.int64)} partitions in all; valid: at most {2**31 - 2}"
            )
        first = np.zeros(counts.size + 1, dtype=np.int32)
        np.cumsum(counts, out=first[1:])
        p.first = _copy(&p.memory, first)
        p.topics = counts.size
        p.partitions = p.first[p.topics]
        kinds = _ints(kind_of, "kind_of")
        bounds = _ints(kind_first, "kind_first")
        topics_of_kinds = _ints(kind_topics, "kind_topics")
        p.kinds = bounds.size - 1
        _check_rows(bounds, topics_of_kinds, p.topics, "kind_first", "kind_topics")
        if kinds.size and (kinds.min() < 0 or kinds.max() >= p.kinds):
            raise ValueError(
                f"kind_of: {_outside(kinds, p.kinds)} is not the index of a kind; valid: 0 to {p.kinds - 1}"
            )
        p.members = kinds.size
        p.kind_of = _copy(&p.memory, kinds)
        p.kind_first = _copy(&p.memory, bounds)
        p.kind_topics = _copy(&p.memory, topics_of_kinds)
        for i in range(p.kinds):
            row = topics_of_kinds[bounds[i]:bounds[i + 1]]
            if row.size > 1 and not bool((np.diff(row) > 0).all()):
                raise ValueError(f"kind_topics: the topics of kind {i} are {_shown(row)}; they must ascend")
        if order is not None:
            permutation = _ints(order, "order")
            if not np.array_equal(np.sort(permutation), np.arange(p.members, dtype=np.int32)):
                raise ValueError(
                    f"order: {_shown(permutation)} is not a permutation of the {p.members} members, 0 to "
                    f"{p.members - 1}"
                )
            p.order = _copy(&p.memory, permutation)
        if generations is not None:
            given = _ints(generations, "generations")
            if given.size != p.members:
                raise ValueError(
                    f"generations: one number for each of the {p.members} members is needed, not {given.size} numbers"
                )
            p.generation = p.subscription_generation = _copy(&p.memory, given)
        if member_racks is not None:
            p._set_racks(_ints(member_racks, "member_racks"), _ints(rack_first, "rack_first"),
                         _ints(rack_list, "rack_list"))
        p.seal()
        # Built now, so that threads sharing a problem only read it.
        p.ensure_classes()
        p.equal = p.homogeneous = p._one_kind()
        return p

    def _set_racks(self, member_racks, rack_first, rack_list):
        if member_racks.size != self.members or rack_first.size != self.partitions + 1:
            raise ValueError(
                f"member_racks: {self.members} entries are needed (one for each member), not {member_racks.size}; "
                f"rack_first: {self.partitions + 1} entries are needed (one more than partitions), not "
                f"{rack_first.size}"
            )
        top = 1 + max(int(member_racks.max(initial=-1)), int(rack_list.max(initial=-1)))
        _check_rows(rack_first, rack_list, top, "rack_first", "rack_list")
        if member_racks.size and member_racks.min() < -1:
            raise ValueError(f"member_racks: {member_racks.min()} is below -1; valid: the number of a rack, or -1 for none")
        self.racks = top
        self.member_rack = _copy(&self.memory, member_racks)
        self.rack_first = _copy(&self.memory, rack_first)
        self.rack_list = _copy(&self.memory, rack_list)
        self.has_racks = bool((member_racks >= 0).any())

    def _one_kind(self):
        """Returns True if all members subscribe to one set of topics."""
        cdef int m, k0, a, b, n
        if self.members == 0:
            return True
        k0 = self.kind_of[0]
        for m in range(1, self.members):
            a = self.kind_of[m]
            if a == k0:
                continue
            n = self.kind_first[a + 1] - self.kind_first[a]
            if n != self.kind_first[k0 + 1] - self.kind_first[k0]:
                return False
            for b in range(n):
                if self.kind_topics[self.kind_first[a] + b] != self.kind_topics[self.kind_first[k0] + b]:
                    return False
        return True

    cdef int seal(self) except -1:
        """Derives the set of subscribed topics. Called once all inputs are set."""
        cdef int m, k, i, t
        cdef char* used = flags(&self.memory, self.kinds, False)
        self.subscribed = flags(&self.memory, self.topics, False)
        for m in range(self.members):
            used[self.kind_of[m]] = 1
        for k in range(self.kinds):
            if used[k]:
                for i in range(self.kind_first[k], self.kind_first[k + 1]):
                    self.subscribed[self.kind_topics[i]] = 1
        self.subscribed_partitions = 0
        for t in range(self.topics):
            if self.subscribed[t]:
                self.subscribed_partitions += self.first[t + 1] - self.first[t]
        return 0

    cdef int ensure_classes(self) except -1 nogil:
        cdef Memory scratch
        if not self.classed:
            memset(&scratch, 0, sizeof(scratch))
            try:
                self.build_classes(&scratch)
            finally:
                release(&scratch)
            self.classed = True
        return 0

    cdef int build_classes(self, Memory* scratch) except -1 nogil:
        """Groups topics with the same subscribers into classes, so that each class needs only one list and one heap."""
        cdef int* used = zeros(scratch, self.kinds)
        cdef int* topic_first = zeros(scratch, self.topics + 1)
        cdef int* representative = ints(scratch, self.topics)
        cdef int* topic_kinds
        cdef int* cursor
        cdef Index seen                # hash of a topic's kinds -> class
        cdef int m, k, i, t, c, candidate, n
        cdef u64 mix
        memset(&seen, 0, sizeof(seen))
        for m in range(self.members):
            used[self.kind_of[m]] += 1
        for k in range(self.kinds):
            if used[k]:
                for i in range(self.kind_first[k], self.kind_first[k + 1]):
                    topic_first[self.kind_topics[i] + 1] += 1
        for t in range(self.topics):
            topic_first[t + 1] += topic_first[t]
        cursor = copied(scratch, topic_first, self.topics)
        topic_kinds = ints(scratch, topic_first[self.topics])
        for k in range(self.kinds):
            if used[k]:
                for i in range(self.kind_first[k], self.kind_first[k + 1]):
                    t = self.kind_topics[i]
                    topic_kinds[cursor[t]] = k
                    cursor[t] += 1
        self.class_of = nones(&self.memory, self.topics)
        for t in range(self.topics):
            n = topic_first[t + 1] - topic_first[t]
            if n == 0:
                continue
            mix = 1469598103934665603ULL  # FNV-1a's initial value
            for i in range(topic_first[t], topic_first[t + 1]):
                mix = mixed(mix, <u64>topic_kinds[i])
            c = found(&seen, mix)
            while c >= 0:
                candidate = representative[c]
                if topic_first[candidate + 1] - topic_first[candidate] == n and memcmp(
                        topic_kinds + topic_first[candidate], topic_kinds + topic_first[t], n * sizeof(int)) == 0:
                    break
                c = found_next(&seen, c)
            if c < 0:
                c = add_key(scratch, &seen, mix)
                representative[c] = t
            self.class_of[t] = c
        self.classes = seen.count
        self._class_rows(scratch, representative, used)
        return 0

    cdef int _class_rows(self, Memory* scratch, const int* representative, const int* members_of) except -1 nogil:
        """Fills two tables: the classes of topics in each different subscription, and the members of each class.

        `members_of` has the number of members with each subscription.
        """
        cdef int* cursor
        cdef int k, i, t, m, c, count = 0
        self.kind_class_first = ints(&self.memory, self.kinds + 1)
        self.kind_class_first[0] = 0
        self.kind_classes = ints(&self.memory, self.kind_first[self.kinds])
        for k in range(self.kinds):
            for i in range(self.kind_first[k], self.kind_first[k + 1]):
                t = self.kind_topics[i]
                # A kind without members keeps its unused row.
                if self.class_of[t] >= 0 and representative[self.class_of[t]] == t:
                    self.kind_classes[count] = self.class_of[t]
                    count += 1
            self.kind_class_first[k + 1] = count
        self.class_first = zeros(&self.memory, self.classes + 1)
        for k in range(self.kinds):
            for i in range(self.kind_class_first[k], self.kind_class_first[k + 1]):
                self.class_first[self.kind_classes[i] + 1] += members_of[k]
        for c in range(self.classes):
            self.class_first[c + 1] += self.class_first[c]
        self.class_members = ints(&self.memory, self.class_first[self.classes])
        cursor = copied(scratch, self.class_first, self.classes)
        for m in range(self.members):
            k = self.kind_of[m]
            for i in range(self.kind_class_first[k], self.kind_class_first[k + 1]):
                self.class_members[cursor[self.kind_classes[i]]] = m
                cursor[self.kind_classes[i]] += 1
        if self.order != NULL:
            self.class_ordered = ints(&self.memory, self.class_first[self.classes])
            memcpy(cursor, self.class_first, self.classes * sizeof(int))
            for t in range(self.members):
                m = self.order[t]
                k = self.kind_of[m]
                for i in range(self.kind_class_first[k], self.kind_class_first[k + 1]):
                    self.class_ordered[cursor[self.kind_classes[i]]] = m
                    cursor[self.kind_classes[i]] += 1
        return 0

    cdef const int* ordered_members(self) noexcept nogil:
        """Returns the members of each class, static members first; `class_first` has the start of each class."""
        return self.class_ordered if self.order != NULL else self.class_members

    cdef bint on_rack(self, int partition, int rack) noexcept nogil:
        cdef int i
        for i in range(self.rack_first[partition], self.rack_first[partition + 1]):
            if self.rack_list[i] == rack:
                return True
        return False

    cdef int rack_aware(self, Memory* scratch) except -1 nogil:
        """Returns True if an assignor must match the racks of members and partitions (KIP-881).

        This is the case if a member's rack has replicas, and if a partition does not have replicas on all racks.
        """
        cdef char* here
        cdef int m, t, p, i, union_size = 0
        cdef bint common = False
        if not self.has_racks:
            return False
        here = flags(scratch, self.racks, False)
        for t in range(self.topics):
            if self.subscribed[t]:
                for i in range(self.rack_first[self.first[t]], self.rack_first[self.first[t + 1]]):
                    if not here[self.rack_list[i]]:
                        here[self.rack_list[i]] = 1
                        union_size += 1
        for m in range(self.members):
            if self.member_rack[m] >= 0 and here[self.member_rack[m]]:
                common = True
                break
        if not common:
            return False
        for t in range(self.topics):
            if self.subscribed[t]:
                for p in range(self.first[t], self.first[t + 1]):
                    if self.rack_first[p + 1] - self.rack_first[p] != union_size:
                        return True
        return False

    cdef bint subscribes(self, int member, int topic) noexcept nogil:
        """Returns True if a member subscribes to a topic."""
        cdef int k = self.kind_of[member], low, high, middle
        low = self.kind_first[k]
        high = self.kind_first[k + 1]
        while low < high:
            middle = (low + high) >> 1
            if self.kind_topics[middle] < topic:
                low = middle + 1
            else:
                high = middle
        return low < self.kind_first[k + 1] and self.kind_topics[low] == topic

    cdef int owners_of_claims(self, int* owner) noexcept nogil:
        """Writes the previous assignment to `owner`.

        If two members report a partition as owned, its owner is the member with the lower index.
        """
        cdef int m, i
        if self.has_owner:
            memcpy(owner, self.given_owner, self.partitions * sizeof(int))
            return 0
        fill(owner, self.partitions, -1)
        if self.has_claims:
            for m in range(self.members):
                for i in range(self.claim_first[m], self.claim_first[m + 1]):
                    if owner[self.claims.at[i]] < 0:
                        owner[self.claims.at[i]] = m
        return 0

    cdef int topic_of_each(self, int* out) noexcept nogil:
        """Computes the topic of every partition."""
        cdef int t, p
        for t in range(self.topics):
            for p in range(self.first[t], self.first[t + 1]):
                out[p] = t
        return 0


def _shown(array):
    """Returns the first numbers of an array, for error texts."""
    first = ", ".join(map(str, array[:10].tolist()))
    return f"[{first}{', ...' if array.size > 10 else ''}]"


def _outside(array, int top):
    """Returns the first number of an array that is not in 0..top - 1."""
    return next(number for number in array.tolist() if not 0 <= number < top)


def _ints(values, str name):
    need_numpy()
    array = np.ascontiguousarray(values, dtype=np.int32)
    if array.ndim != 1:
        raise ValueError(f"{name}: one dimension is needed, not {array.ndim}")
    return array


def _check_rows(bounds, values, int top, str first_name, str name):
    if bounds.size < 1 or bounds[0] != 0 or bounds[bounds.size - 1] != values.size or bool((np.diff(bounds) < 0).any()):
        raise ValueError(
            f"{first_name}: {_shown(bounds)} must rise from 0 to {values.size}, the length of {name}"
        )
    if values.size and (values.min() < 0 or values.max() >= top):
        raise ValueError(f"{name}: the index {_outside(values, top)} is outside of 0..{top - 1}")


cdef int* _copy(Memory* memory, object array) except NULL:
    cdef const int[::1] view = array
    cdef int* out = ints(memory, view.shape[0])
    if view.shape[0]:
        memcpy(out, &view[0], view.shape[0] * sizeof(int))
    return out


cdef int* numbers_of(Memory* memory, object values, Py_ssize_t n, str complaint) except NULL:
    """Copies an array of `n` numbers. Raises ValueError."""
    array = _ints(values, complaint.partition(":")[0])
    if array.size != n:
        raise ValueError(f"{complaint}: {n} values, not {array.size}")
    return _copy(memory, array)


cdef int checked_owner(Problem problem, object previous, int* owner) except -1:
    """Copies an owner array and checks it. Raises ValueError.

    If `previous` is None, the owners are the members that report the partitions as owned.
    """
    cdef const int[::1] view
    cdef int p, n = problem.partitions, m = problem.members
    cdef unsigned bad = 0
    if previous is None:
        problem.owners_of_claims(owner)
        return 0
    need_numpy()
    view = _ints(previous, "previous") if not (
        isinstance(previous, np.ndarray) and previous.dtype == np.int32) else previous
    if view.shape[0] != n:
        raise ValueError(f"previous: {n} entries are needed, not {view.shape[0]}")
    if n == 0:
        return 0
    memcpy(owner, &view[0], n * sizeof(int))
    # One comparison per partition, without a branch: -1 becomes 0; any invalid number is large as unsigned.
    for p in range(n):
        bad |= <unsigned>(owner[p] + 1) > <unsigned>m
    if bad:
        raise ValueError(
            f"previous: {next(o for o in np.asarray(view).tolist() if not -1 <= o < m)} is neither -1 nor one of {m} members, 0 "
            f"to {m - 1}"
        )
    return 0


cdef object new_array(Py_ssize_t n, int** data):
    """Returns a numpy array to be filled through `data`."""
    cdef int[::1] view
    need_numpy()
    array = np.empty(n, dtype=np.int32)
    if n:
        view = array
        data[0] = &view[0]
    else:
        data[0] = NULL
    return array


cdef object as_array(const int* values, Py_ssize_t n):
    """Returns a numpy copy."""
    cdef int* data
    array = new_array(n, &data)
    if n:
        memcpy(data, values, n * sizeof(int))
    return array


cdef int checked_rows(Problem problem, object claim_first, object claims, Memory* memory, int** first,
                      int** rows) except -1:
    """Copies rows member -> partitions and checks them. Raises ValueError."""
    bounds = _ints(claim_first, "first")
    values = _ints(claims, "rows")
    if bounds.size != problem.members + 1:
        raise ValueError(
            f"first: {problem.members + 1} entries are needed (one for each member and one more), not {bounds.size}"
        )
    _check_rows(bounds, values, problem.partitions, "first", "rows")
    first[0] = _copy(memory, bounds)
    rows[0] = _copy(memory, values)
    return 0
