# distutils: language = c++
"""From value objects to arrays and back."""

from collections.abc import Mapping

from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF, PyObject
from libcpp.unordered_map cimport unordered_map
from libcpp.vector cimport vector

from kcore_ext.assign.ids cimport compare_ids, order_of_ids, same_text
from kcore_ext.assign.model cimport Member, Subscription, Topics
from kcore_ext.assign.problem cimport Problem
from kcore_ext.assign.result cimport GroupAssignment, MemberAssignment

from kcore_ext.assign.model import utf16_key

cdef int GONE = -(1 << 30)


cdef int take_ids(Lowered low, vector[PyObject*]& ids, vector[int]& where) except -1:
    """Fills `low.ids` in the order `where`."""
    cdef Py_ssize_t i, n = <Py_ssize_t>ids.size()
    cdef list out = PyList_New(n)
    for i in range(n):
        Py_INCREF(<object>ids[where[i]])
        PyList_SET_ITEM(out, i, <object>ids[where[i]])
    low.ids = out
    return 0


cdef class Lowered:
    """A Problem together with the names that its numbers stand for."""

    cdef GroupAssignment exclusive(self, vector[int]& owner):
        """The assignment in which partition p belongs to member owner[p]."""
        cdef GroupAssignment out = self._empty()
        out.exclusive = True
        out.owner.swap(owner)
        return out

    cdef GroupAssignment shared(self, vector[int]& row_first, vector[int]& rows):
        """The assignment whose member m has rows[row_first[m]:row_first[m + 1]] (ascending)."""
        cdef GroupAssignment out = self._empty()
        out.exclusive = False
        out.row_first.swap(row_first)
        out.rows.swap(rows)
        out.rows_ready = True
        return out

    def _empty(self):
        cdef GroupAssignment out = GroupAssignment.__new__(GroupAssignment)
        out.topics = self.topics
        out.ids = self.ids
        out.given_at = self.where
        out.identity = self.identity
        out.local = self.local
        out.first = self.problem.first
        return out


cdef Lowered lower(object members, object topics, Source source, bint racks, object previous):
    """Lowers a group. `previous` (server side) is a GroupAssignment or a mapping like it and wins over `Member.owned`."""
    cdef Lowered low = Lowered.__new__(Lowered)
    cdef list given = list(members.values() if isinstance(members, Mapping) else members)
    low.topics = topics if isinstance(topics, Topics) else Topics(topics)
    low.problem = Problem.__new__(Problem)
    _sort_members(low, given, previous)
    _read_subscriptions(low)
    _read_order(low)
    if racks and low.topics.has_racks:
        _read_racks(low)
    if previous is not None:
        _read_previous(low, previous)
    elif source != NOTHING:
        _read_claims(low, source)
    return low


cdef int _sort_members(Lowered low, list given, object previous) except -1:
    """Fills ids and members, ascending by id; the order that `previous` was given in is tried first."""
    cdef vector[PyObject*] ids
    cdef int i, n = <int>len(given)
    cdef Member member
    low.given = given
    low.problem.members = n
    ids.resize(n)
    for i in range(n):
        member = <Member?>given[i]
        ids[i] = <PyObject*>member.member_id
    if not isinstance(previous, GroupAssignment) or not _order_as_before(low, ids, <GroupAssignment>previous):
        order_of_ids(ids, low.where)
        take_ids(low, ids, low.where)
    low.members.resize(n)
    for i in range(n):
        low.members[i] = <PyObject*>given[low.where[i]]
    return 0


cdef bint _order_as_before(Lowered low, vector[PyObject*]& ids, GroupAssignment before) except -1:
    """Takes over the order of an earlier call when the same members came first then; new ones are merged in.

    A group is usually kept in one order and grows at its end, so sorting it again would be most of the work.
    """
    cdef int old = <int>before.given_at.size(), n = <int>ids.size(), i, j = 0, k, low_at, high_at, middle, found
    cdef vector[PyObject*] fresh
    cdef vector[int] fresh_order
    cdef list merged, known = before.ids
    if old == 0 or n < old:
        return False
    for i in range(old):
        if not same_text(<PyObject*>known[i], ids[before.given_at[i]]):
            return False
    if n == old:
        low.where = before.given_at
        low.ids = known
        return True
    fresh.assign(ids.begin() + old, ids.end())
    order_of_ids(fresh, fresh_order)
    merged = []
    low.where.reserve(n)
    for k in range(n - old):
        low_at = j
        high_at = old
        while low_at < high_at:
            middle = (low_at + high_at) >> 1
            found = compare_ids(<PyObject*>known[middle], fresh[fresh_order[k]])
            if found == 0:
                raise ValueError(f"two members have the id {known[middle]!r}")
            if found < 0:
                low_at = middle + 1
            else:
                high_at = middle
        merged.extend(known[j:low_at])
        low.where.insert(low.where.end(), before.given_at.begin() + j, before.given_at.begin() + low_at)
        merged.append(<object>fresh[fresh_order[k]])
        low.where.push_back(old + fresh_order[k])
        j = low_at
    merged.extend(known[j:])
    low.where.insert(low.where.end(), before.given_at.begin() + j, before.given_at.end())
    low.ids = merged
    return True


cdef int _read_subscriptions(Lowered low) except -1:
    """Kinds of subscription, the topics they name together, and the rows of local topic numbers."""
    cdef Problem p = low.problem
    cdef Topics topics = low.topics
    cdef unordered_map[size_t, int] known
    cdef vector[char] used
    cdef vector[int] to_local
    cdef list kinds = []
    cdef Subscription s, last = None
    cdef int m, k = -1, t, total = <int>len(topics.ordered)
    p.kind_of.resize(p.members)
    for m in range(p.members):
        s = (<Member><object>low.members[m]).subscription
        if s is not last:
            last = s
            if m and known.empty():
                known[<size_t><PyObject*>kinds[0]] = 0
            if m == 0 or known.count(<size_t><PyObject*>s) == 0:
                k = <int>len(kinds)
                kinds.append(s)
                s.resolve(topics)
                if m:
                    known[<size_t><PyObject*>s] = k
            else:
                k = known[<size_t><PyObject*>s]
        p.kind_of[m] = k
    p.kinds = <int>len(kinds)
    used.assign(total, 0)
    low.missing = []
    for s in kinds:
        if s.missing:
            low.missing.extend(s.missing)
        for t in s.resolved:
            used[t] = 1
    to_local.resize(total)
    p.first.assign(1, 0)
    for t in range(total):
        if used[t]:
            to_local[t] = <int>low.local.size()
            low.local.push_back(t)
            p.first.push_back(p.first.back() + topics.first[t + 1] - topics.first[t])
    low.identity = <int>low.local.size() == total
    p.topics = <int>low.local.size()
    p.partitions = p.first.back()
    p.subscribed_partitions = p.partitions
    p.subscribed.assign(p.topics, 1)
    p.kind_first.assign(1, 0)
    for s in kinds:
        for t in s.resolved:
            p.kind_topics.push_back(to_local[t])
        p.kind_first.push_back(<int>p.kind_topics.size())
    if p.kinds > 1:
        s = kinds[0]
        p.homogeneous = all((<Subscription>other).unique == s.unique for other in kinds)
        p.equal = p.homogeneous and all((<Subscription>other).listed == s.listed for other in kinds)
    return 0


cdef int _read_order(Lowered low) except -1:
    """Static members first, by instance id; the rest by member id (Kafka's MemberInfo order)."""
    cdef int m
    cdef bint found = False
    for m in range(low.problem.members):
        if (<Member><object>low.members[m]).instance_id is not None:
            found = True
            break
    if not found:
        return 0
    static = [m for m in range(low.problem.members) if (<Member><object>low.members[m]).instance_id is not None]
    static.sort(key=lambda i: utf16_key((<Member><object>low.members[i]).instance_id))
    for m in static:
        low.problem.order.push_back(m)
    for m in range(low.problem.members):
        if (<Member><object>low.members[m]).instance_id is None:
            low.problem.order.push_back(m)
    return 0


cdef int _read_racks(Lowered low) except -1:
    """Numbers the racks; one that no replica is on gets a number of its own."""
    cdef Problem p = low.problem
    cdef Topics topics = low.topics
    cdef dict numbers = dict(topics.rack_index)
    cdef Member member
    cdef int m, i, t, q
    p.member_rack.assign(p.members, -1)
    for m in range(p.members):
        member = <Member><object>low.members[m]
        if member.rack_id is not None:
            p.member_rack[m] = numbers.setdefault(member.rack_id, len(numbers))
            p.has_racks = True
    p.racks = <int>len(numbers)
    if not p.has_racks:
        return 0
    p.rack_first.assign(1, 0)
    for i in range(p.topics):
        t = low.local[i]
        for q in range(topics.first[t], topics.first[t + 1]):
            p.rack_list.insert(p.rack_list.end(), topics.rack_list.begin() + topics.rack_first[q],
                               topics.rack_list.begin() + topics.rack_first[q + 1])
            p.rack_first.push_back(<int>p.rack_list.size())
    return 0


cdef class Rows:
    """Collects claims; remembers how partition numbers of an earlier assignment translate."""

    def __cinit__(self, Lowered low):
        cdef int i, t
        self.low = low
        local = {low.local[i]: i for i in range(<int>low.local.size())}
        self.where = {}
        for name, t in low.topics.index.items():
            if t in local:
                self.where[name] = local[t]

    cdef int add(self, object owned) except -1:
        """Appends the partitions of a mapping topic -> numbers that exist here; unknown ones are dropped."""
        cdef Problem p = self.low.problem
        cdef MemberAssignment row
        cdef int t, number, count
        if type(owned) is MemberAssignment:
            row = <MemberAssignment>owned
            if row.parent is not None:
                return self.add_row(row.parent, row.member)
            owned = row.values_by_topic
        for topic, numbers in owned.items():
            found = self.where.get(topic)
            if found is None:
                continue
            t = found
            count = p.first[t + 1] - p.first[t]
            for number in numbers:
                # Kafka does not check the index and stumbles over a partition that is gone.
                if 0 <= number < count:
                    p.claims.push_back(p.first[t] + number)
        return 0

    cdef int add_row(self, GroupAssignment parent, int member) except -1:
        """The same for a row of an earlier assignment, without objects in between."""
        cdef Problem p = self.low.problem
        cdef int i, number, t = 0, move
        parent.need_rows()
        if parent is not self.parent:
            self.translate(parent)
        i = parent.row_first[member]
        if i < parent.row_first[member + 1]:
            t = _topic_of(parent.first, parent.rows[i])
        while i < parent.row_first[member + 1]:
            number = parent.rows[i]
            while number >= parent.first[t + 1]:
                t += 1
            move = self.table[2 * t]
            if move != GONE and number - parent.first[t] < self.table[2 * t + 1]:
                p.claims.push_back(number + move)
            i += 1
        return 0

    cdef int add_user_data(self, bytes data) except -2:
        """Appends what sticky's user data claims and returns its generation: version 1, else 0 (-1), else nothing (-1)."""
        cdef Problem p = self.low.problem
        cdef const unsigned char* at = data
        cdef Py_ssize_t left = len(data), size
        cdef size_t kept = p.claims.size()
        cdef int topics, count, number, t, here
        if left < 4:
            return -1
        topics = _be32(at)
        at += 4
        left -= 4
        for _ in range(topics):
            size = (<Py_ssize_t>at[0] << 8) | at[1] if left >= 2 else 0x8000
            if size >= 0x8000 or left < 2 + size + 4:
                p.claims.resize(kept)
                return -1
            found = self.where.get(at[2:2 + size].decode("utf-8", "replace"))
            at += 2 + size
            count = _be32(at)
            at += 4
            left -= 6 + size
            if count < 0 or left < 4 * <Py_ssize_t>count:
                p.claims.resize(kept)
                return -1
            t = found if found is not None else -1
            here = p.first[t + 1] - p.first[t] if t >= 0 else 0
            for _ in range(count):
                number = _be32(at)
                at += 4
                if 0 <= number < here:
                    p.claims.push_back(p.first[t] + number)
            left -= 4 * <Py_ssize_t>count
        return _be32(at) if left >= 4 else -1

    cdef int translate(self, GroupAssignment parent) except -1:
        """Pairs (shift, partitions now) for every topic of an earlier assignment."""
        cdef Problem p = self.low.problem
        cdef int t, here
        self.parent = parent
        self.table.clear()
        for t in range(<int>parent.first.size() - 1):
            found = self.where.get(parent.topics.ordered[t if parent.identity else parent.local[t]])
            if found is None:
                self.table.push_back(GONE)
                self.table.push_back(0)
            else:
                here = found
                self.table.push_back(p.first[here] - parent.first[t])
                self.table.push_back(p.first[here + 1] - p.first[here])
        return 0


cdef inline int _be32(const unsigned char* at) noexcept nogil:
    return <int>((<unsigned>at[0] << 24) | (<unsigned>at[1] << 16) | (<unsigned>at[2] << 8) | <unsigned>at[3])


cdef int _topic_of(vector[int]& first, int partition) noexcept nogil:
    cdef int low = 0, high = <int>first.size() - 1, middle
    while high - low > 1:
        middle = (low + high) >> 1
        if first[middle] <= partition:
            low = middle
        else:
            high = middle
    return low


cdef int _read_claims(Lowered low, Source source) except -1:
    """Claims and generations of all members, from `owned` or from sticky's user data."""
    cdef Problem p = low.problem
    cdef Rows rows = None
    cdef Member member
    cdef int m
    cdef bint anything = False
    for m in range(p.members):
        member = <Member><object>low.members[m]
        if member.user_data is not None:
            anything = True
        elif source == OWNED:
            anything = member.generation_id >= 0 or len(member.owned) > 0
        if anything:
            break
    if not anything:
        return 0
    rows = Rows(low)
    p.has_claims = True
    p.claim_first.assign(1, 0)
    p.generation.assign(p.members, -1)
    p.subscription_generation.assign(p.members, -1)
    for m in range(p.members):
        member = <Member><object>low.members[m]
        p.subscription_generation[m] = member.generation_id
        if source == USER_DATA:
            if type(member.user_data) is bytes:
                p.generation[m] = rows.add_user_data(member.user_data)
            elif member.user_data is not None:
                p.generation[m] = member.user_data.generation_id
                rows.add(member.user_data.owned)
        else:
            p.generation[m] = member.generation_id
            if member.generation_id < 0 and type(member.user_data) is bytes and len(<bytes>member.user_data) >= 4:
                # Before KIP-792 cooperative-sticky sent its generation as user data.
                p.generation[m] = _be32(<bytes>member.user_data)
            rows.add(member.owned)
        p.claim_first.push_back(<int>p.claims.size())
    return 0


cdef int _read_previous(Lowered low, object previous) except -1:
    """The previous target: as an owner array when it is one of our assignments, else as claims."""
    cdef Problem p = low.problem
    cdef Rows rows
    cdef GroupAssignment before
    cdef int m, q
    if isinstance(previous, GroupAssignment):
        before = <GroupAssignment>previous
        if before.exclusive:
            return _read_owner(low, before)
    rows = Rows(low)
    p.has_claims = True
    p.claim_first.assign(1, 0)
    for m in range(p.members):
        member_id = low.ids[m]
        if isinstance(previous, GroupAssignment):
            q = before.position(member_id)
            if q >= 0:
                rows.add_row(before, q)
            else:
                rows.add((<Member><object>low.members[m]).owned)
        else:
            rows.add(previous.get(member_id, (<Member><object>low.members[m]).owned))
        p.claim_first.push_back(<int>p.claims.size())
    return 0


cdef int _read_owner(Lowered low, GroupAssignment before) except -1:
    """Carries the owner array of an earlier assignment over to the members and topics of now."""
    cdef Problem p = low.problem
    cdef vector[int] renumbered, single
    cdef Rows rows
    cdef Member member
    cdef int m, q = 0, t, i, n = <int>len(before.ids), shift, top
    renumbered.assign(n, -1)
    # (The casts in front of vector elements below matter: a conditional expression of a reference and a constant would
    # refer to a temporary.)
    # Both lists ascend: a member that stayed is usually met at once and is usually the same object.
    for m in range(p.members):
        if q < n and same_text(<PyObject*>before.ids[q], <PyObject*>low.ids[m]):
            renumbered[q] = m
            q += 1
            continue
        if q + 1 < n and same_text(<PyObject*>before.ids[q + 1], <PyObject*>low.ids[m]):
            renumbered[q + 1] = m
            q += 2
            continue
        i = before.position(low.ids[m])
        if i >= 0:
            renumbered[i] = m
            q = i + 1
        elif len((<Member><object>low.members[m]).owned) > 0:
            single.push_back(m)
    p.has_owner = True
    p.given_owner.assign(p.partitions, -1)
    rows = Rows(low) if not (before.topics is low.topics and before.identity and low.identity) or single.size() else None
    if before.topics is low.topics and before.identity and low.identity:
        for i in range(p.partitions):
            q = before.owner[i]
            p.given_owner[i] = <int>renumbered[q] if q >= 0 else -1
    else:
        rows.translate(before)
        for t in range(<int>before.first.size() - 1):
            shift = rows.table[2 * t]
            if shift == GONE:
                continue
            top = before.first[t + 1]
            if top > before.first[t] + rows.table[2 * t + 1]:
                top = before.first[t] + rows.table[2 * t + 1]
            for i in range(before.first[t], top):
                q = before.owner[i]
                p.given_owner[i + shift] = <int>renumbered[q] if q >= 0 else -1
    for m in single:
        p.claims.clear()
        rows.add((<Member><object>low.members[m]).owned)
        for i in p.claims:
            if p.given_owner[i] < 0:
                p.given_owner[i] = m
    p.claims.clear()
    return 0
