"""Conversion from value objects to arrays and back."""

from collections.abc import Mapping

from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF, PyObject

from libc.string cimport memcpy, memset

from kcore_ext.assign.claims cimport GONE, ClaimReader, be32, claim_reader
from kcore_ext.assign.containers cimport (
    Index,
    IntVec,
    Memory,
    Scratch,
    add_key,
    copied,
    flags,
    found,
    ints,
    nones,
    push,
    release,
    take,
    u64,
)
from kcore_ext.assign.ids cimport compare_ids, order_of_ids, same_text
from kcore_ext.assign.model cimport Member, Subscription, Topics
from kcore_ext.assign.problem cimport Problem
from kcore_ext.assign.result cimport FIRST_RESULT_BLOCK, GroupAssignment

from kcore_ext.assign.model import utf16_key

cdef int take_ids(Lowered low, PyObject** ids) except -1:
    """Sets `low.ids` to the member ids in the order of the problem, which `low.where` describes."""
    cdef Py_ssize_t i, n = low.problem.members
    cdef list out = PyList_New(n)
    for i in range(n):
        Py_INCREF(<object>ids[low.where[i]])
        PyList_SET_ITEM(out, i, <object>ids[low.where[i]])
    low.ids = out
    return 0


cdef class Lowered:
    """A Problem with the names of its numbered members and topics."""

    def __dealloc__(self):
        release(&self.memory)

    cdef GroupAssignment exclusive(self):
        """Returns a new assignment with one owner per partition; the caller fills `owner`."""
        cdef GroupAssignment out = self.empty()
        out.exclusive = True
        out.owner = ints(&out.memory, out.partitions)
        return out

    cdef GroupAssignment shared(self, Py_ssize_t total):
        """Returns a new assignment with `total` pairs of member and partition; the caller fills `row_first` and
        `rows`.
        """
        cdef GroupAssignment out = self.empty()
        out.exclusive = False
        out.row_first = ints(&out.memory, self.problem.members + 1)
        out.rows = ints(&out.memory, total)
        out.rows_ready = True
        return out

    cdef GroupAssignment empty(self):
        cdef GroupAssignment out = GroupAssignment.__new__(GroupAssignment)
        cdef int i, n = self.problem.topics
        out.topics = self.topics
        out.ids = self.ids
        out.memory.block_size = FIRST_RESULT_BLOCK
        out.given_at = copied(&out.memory, self.where, self.problem.members)
        out.identity = self.identity
        out.names = self.topics.ordered
        if not self.identity:
            out.names = tuple([self.topics.ordered[self.local[i]] for i in range(n)])
        out.topic_count = n
        out.first = copied(&out.memory, self.problem.first, n + 1)
        out.partitions = self.problem.partitions
        if self.before is not None:
            out.before = self.before
            # Only one predecessor is kept, or else all earlier assignments would stay in memory.
            self.before.before = None
        return out


cdef Lowered lower(object members, object topics, Source source, bint racks, object previous):
    """Converts a group to arrays. `previous` (server side) is a GroupAssignment or a similar mapping and overrides
    `Member.owned`.
    """
    cdef Lowered low = Lowered.__new__(Lowered)
    cdef list given = list(members.values() if isinstance(members, Mapping) else members)
    cdef Scratch scratch = Scratch.__new__(Scratch)
    low.topics = topics if isinstance(topics, Topics) else Topics(topics)
    low.before = previous if isinstance(previous, GroupAssignment) else None
    low.problem = Problem.__new__(Problem)
    _sort_members(low, &scratch.memory, given, previous)
    _read_subscriptions(low, &scratch.memory)
    if racks and low.topics.has_racks:
        _read_racks(low)
    if previous is not None:
        _read_previous(low, &scratch.memory, previous)
    elif source != NOTHING:
        _read_claims(low, source)
    return low


cdef int _sort_members(Lowered low, Memory* scratch, list given, object previous) except -1:
    """Fills ids, members and order, ascending by id; tries the order of `previous` first."""
    cdef int i, n = <int>len(given)
    cdef PyObject** ids = <PyObject**>take(scratch, n * sizeof(PyObject*))
    cdef Member member
    cdef bint static = False
    low.given = given
    low.problem.members = n
    for i in range(n):
        member = <Member?>given[i]
        ids[i] = <PyObject*>member.member_id
        static = static or member.instance_id is not None
    low.where = ints(&low.memory, n)
    if not isinstance(previous, GroupAssignment) or not _order_as_before(low, scratch, ids, <GroupAssignment>previous):
        order_of_ids(ids, n, low.where)
        take_ids(low, ids)
    low.members = <PyObject**>take(&low.memory, n * sizeof(PyObject*))
    for i in range(n):
        low.members[i] = <PyObject*>given[low.where[i]]
    return _read_order(low) if static else 0


cdef bint _order_as_before(Lowered low, Memory* scratch, PyObject** ids, GroupAssignment before) except -1:
    """Reuses the order of an earlier call if the same members come first; merges new members into it.

    Callers usually keep a group in one order and append to it, so sorting it again would be most of the work.
    """
    cdef int old = <int>len(before.ids) if before.given_at != NULL else 0, n = low.problem.members, i
    if old == 0 or n < old:
        return False
    for i in range(old):
        if not same_text(<PyObject*>before.ids[i], ids[before.given_at[i]]):
            return False
    if n == old:
        memcpy(low.where, before.given_at, n * sizeof(int))
        low.ids = before.ids
        return True
    return _merge(low, scratch, ids, before, old)


cdef bint _merge(Lowered low, Memory* scratch, PyObject** ids, GroupAssignment before, int old) except -1:
    """Merges the members from index `old` on into the order of the first `old` members."""
    cdef int fresh_count = low.problem.members - old, j = 0, k, w = 0, low_at, high_at, middle, order
    cdef PyObject** fresh = ids + old
    cdef int* fresh_order = ints(scratch, fresh_count)
    cdef list merged = [], known = before.ids
    order_of_ids(fresh, fresh_count, fresh_order)
    for k in range(fresh_count):
        low_at = j
        high_at = old
        while low_at < high_at:
            middle = (low_at + high_at) >> 1
            order = compare_ids(<PyObject*>known[middle], fresh[fresh_order[k]])
            if order == 0:
                raise ValueError(f"two members have the id {known[middle]!r}")
            if order < 0:
                low_at = middle + 1
            else:
                high_at = middle
        merged.extend(known[j:low_at])
        memcpy(low.where + w, before.given_at + j, (low_at - j) * sizeof(int))
        w += low_at - j
        merged.append(<object>fresh[fresh_order[k]])
        low.where[w] = old + fresh_order[k]
        w += 1
        j = low_at
    merged.extend(known[j:])
    memcpy(low.where + w, before.given_at + j, (old - j) * sizeof(int))
    low.ids = merged
    return True


cdef list _kinds(Lowered low, Memory* scratch):
    """Resolves and returns the distinct subscriptions. Fills `kind_of` with the index of each member's subscription."""
    cdef Problem p = low.problem
    cdef Index known                  # address of a subscription -> kind
    cdef list kinds = []
    cdef PyObject* last = NULL
    cdef PyObject* s
    cdef int m, k = -1
    memset(&known, 0, sizeof(known))
    p.kind_of = ints(&p.memory, p.members)
    for m in range(p.members):
        s = <PyObject*>(<Member><object>low.members[m]).subscription
        if s != last:
            last = s
            k = found(&known, <u64><size_t>s)
            if k < 0:
                k = add_key(scratch, &known, <u64><size_t>s)
                kinds.append(<object>s)
                (<Subscription><object>s).resolve(low.topics)
        p.kind_of[m] = k
    return kinds


cdef int _read_subscriptions(Lowered low, Memory* scratch) except -1:
    """Numbers the subscribed topics, and fills the problem with the topics of each different subscription."""
    cdef Problem p = low.problem
    cdef Topics topics = low.topics
    cdef list kinds = _kinds(low, scratch)
    cdef char* used = flags(scratch, topics.count, False)
    cdef int* to_local = ints(scratch, topics.count)
    cdef Subscription s
    cdef int i, k, t, total = 0
    p.kinds = <int>len(kinds)
    low.missing = []
    for s in kinds:
        s.resolve(topics)  # again, because another thread may have resolved it for its own topics
        if s.missing:
            low.missing.extend(s.missing)
        for i in range(s.resolved_count):
            used[s.resolved[i]] = 1
        total += s.resolved_count
    low.local = ints(&low.memory, topics.count)
    p.first = ints(&p.memory, topics.count + 1)
    p.first[0] = 0
    for t in range(topics.count):
        if used[t]:
            to_local[t] = p.topics
            low.local[p.topics] = t
            p.first[p.topics + 1] = p.first[p.topics] + topics.first[t + 1] - topics.first[t]
            p.topics += 1
    low.identity = p.topics == topics.count
    p.partitions = p.first[p.topics]
    p.subscribed_partitions = p.partitions
    p.subscribed = flags(&p.memory, p.topics, True)
    p.kind_first = ints(&p.memory, p.kinds + 1)
    p.kind_topics = ints(&p.memory, total)
    p.kind_first[0] = total = 0
    for k in range(p.kinds):
        s = kinds[k]
        s.resolve(topics)
        for i in range(s.resolved_count):
            p.kind_topics[total] = to_local[s.resolved[i]]
            total += 1
        p.kind_first[k + 1] = total
    if p.kinds > 1:
        s = kinds[0]
        p.homogeneous = all((<Subscription>other).unique == s.unique for other in kinds)
        p.equal = p.homogeneous and all((<Subscription>other).listed == s.listed for other in kinds)
    return 0


cdef int _read_order(Lowered low) except -1:
    """Orders static members by instance id, then dynamic members by member id (Kafka's MemberInfo order)."""
    cdef int m, at = 0
    low.problem.order = ints(&low.problem.memory, low.problem.members)
    static = [m for m in range(low.problem.members) if (<Member><object>low.members[m]).instance_id is not None]
    static.sort(key=lambda i: utf16_key((<Member><object>low.members[i]).instance_id))
    for m in static:
        low.problem.order[at] = m
        at += 1
    for m in range(low.problem.members):
        if (<Member><object>low.members[m]).instance_id is None:
            low.problem.order[at] = m
            at += 1
    return 0


cdef int _read_racks(Lowered low) except -1:
    """Numbers the racks. Racks that have members but no replicas get the highest numbers."""
    cdef Problem p = low.problem
    cdef Topics topics = low.topics
    cdef dict numbers = dict(topics.rack_index)
    cdef Member member
    cdef int m, i, t, q, n, at = 0, partition = 0
    p.member_rack = nones(&p.memory, p.members)
    for m in range(p.members):
        member = <Member><object>low.members[m]
        if member.rack_id is not None:
            p.member_rack[m] = numbers.setdefault(member.rack_id, len(numbers))
            p.has_racks = True
    p.racks = <int>len(numbers)
    if not p.has_racks:
        return 0
    p.rack_first = ints(&p.memory, p.partitions + 1)
    p.rack_list = ints(&p.memory, topics.rack_first[topics.first[topics.count]])
    p.rack_first[0] = 0
    for i in range(p.topics):
        t = low.local[i]
        for q in range(topics.first[t], topics.first[t + 1]):
            n = topics.rack_first[q + 1] - topics.rack_first[q]
            memcpy(p.rack_list + at, topics.rack_list + topics.rack_first[q], n * sizeof(int))
            at += n
            partition += 1
            p.rack_first[partition] = at
    return 0


cdef int _read_claims(Lowered low, Source source) except -1:
    """Reads the claims and generations of all members, from `owned` or from the user data of the sticky assignor."""
    cdef Problem p = low.problem
    cdef ClaimReader rows = None
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
    rows = claim_reader(p, low.topics, low.local)
    p.has_claims = True
    p.claim_first = ints(&p.memory, p.members + 1)
    p.claim_first[0] = 0
    p.generation = nones(&p.memory, p.members)
    p.subscription_generation = nones(&p.memory, p.members)
    for m in range(p.members):
        member = <Member><object>low.members[m]
        p.subscription_generation[m] = member.generation_id
        if source == USER_DATA:
            if type(member.user_data) is bytes:
                p.generation[m] = rows.add_user_data(member.user_data)
            elif member.user_data is not None:
                p.generation[m] = member.user_data.generation_id
                rows.add(member.user_data.owned, member.member_id)
        else:
            p.generation[m] = member.generation_id
            if member.generation_id < 0 and type(member.user_data) is bytes and len(<bytes>member.user_data) >= 4:
                # Before KIP-792, cooperative-sticky sent its generation as user data.
                p.generation[m] = be32(<bytes>member.user_data)
            rows.add(member.owned, member.member_id)
        p.claim_first[m + 1] = <int>p.claims.size
    return 0


cdef int _read_previous(Lowered low, Memory* scratch, object previous) except -1:
    """Reads the previous target: as an owner array if it is a GroupAssignment, else as partitions of each member."""
    cdef Problem p = low.problem
    cdef ClaimReader rows
    cdef GroupAssignment before
    cdef int m, q
    if isinstance(previous, GroupAssignment):
        before = <GroupAssignment>previous
        if before.exclusive:
            return _read_owner(low, scratch, before)
    elif not isinstance(previous, Mapping):
        raise TypeError(f"previous: an assignment is needed, not {type(previous).__name__}")
    rows = claim_reader(p, low.topics, low.local)
    p.has_claims = True
    p.claim_first = ints(&p.memory, p.members + 1)
    p.claim_first[0] = 0
    for m in range(p.members):
        member_id = low.ids[m]
        if isinstance(previous, GroupAssignment):
            q = before.position(member_id)
            if q >= 0:
                rows.add_row(before, q)
            else:
                rows.add((<Member><object>low.members[m]).owned, <str>low.ids[m])
        else:
            rows.add(previous.get(member_id, (<Member><object>low.members[m]).owned), member_id)
        p.claim_first[m + 1] = <int>p.claims.size
    return 0


cdef int _renumber(Lowered low, Memory* scratch, GroupAssignment before, int* renumbered, IntVec* fresh) except -1:
    """Maps the members of an earlier assignment to current members. `fresh` gets the new members with claims."""
    cdef int m, i, q = 0, n = <int>len(before.ids)
    # Both lists ascend: a remaining member usually comes next and is usually the same object.
    for m in range(low.problem.members):
        if q < n and same_text(<PyObject*>before.ids[q], <PyObject*>low.ids[m]):
            renumbered[q] = m
            q += 1
            continue
        if q + 1 < n and same_text(<PyObject*>before.ids[q + 1], <PyObject*>low.ids[m]):
            renumbered[q + 1] = m
            q += 2
            continue
        i = -1
        if q < n and (
            m + 1 == low.problem.members or not same_text(<PyObject*>before.ids[q], <PyObject*>low.ids[m + 1])
        ):
            i = before.position(low.ids[m])  # skipped for a single new member
        if i >= 0:
            renumbered[i] = m
            q = i + 1
        elif len((<Member><object>low.members[m]).owned) > 0:
            push(scratch, fresh, m)
    return 0


cdef int _read_owner(Lowered low, Memory* scratch, GroupAssignment before) except -1:
    """Translates the owner array of an earlier assignment to the current members and topics."""
    cdef Problem p = low.problem
    cdef int* renumbered = nones(scratch, len(before.ids))
    cdef IntVec fresh = IntVec(NULL, 0, 0)
    cdef bint same_topics = before.topics is low.topics and before.identity and low.identity
    cdef ClaimReader rows = None
    cdef int k, m, q, t, i, shift, top
    _renumber(low, scratch, before, renumbered, &fresh)
    p.has_owner = True
    if not same_topics or fresh.size:
        rows = claim_reader(p, low.topics, low.local)
    if same_topics:
        p.given_owner = ints(&p.memory, p.partitions)
        for i in range(p.partitions):
            q = before.owner[i]
            p.given_owner[i] = renumbered[q] if q >= 0 else -1
    else:
        p.given_owner = nones(&p.memory, p.partitions)
        rows.translate(before)
        for t in range(before.topic_count):
            shift = rows.table[2 * t]
            if shift == GONE:
                continue
            top = min(before.first[t + 1], before.first[t] + rows.table[2 * t + 1])
            for i in range(before.first[t], top):
                q = before.owner[i]
                p.given_owner[i + shift] = renumbered[q] if q >= 0 else -1
    for k in range(<int>fresh.size):
        m = fresh.at[k]
        p.claims.size = 0
        rows.add((<Member><object>low.members[m]).owned, <str>low.ids[m])
        for i in range(<int>p.claims.size):
            if p.given_owner[p.claims.at[i]] < 0:
                p.given_owner[p.claims.at[i]] = m
    p.claims.size = 0
    return 0
