"""The sticky assignor for unequal subscriptions: keeps partitions, fills the least loaded members, and then moves
partitions while that improves the balance (KIP-54, KIP-341).

Kafka tests before every partition whether the whole assignment is balanced. That test can only end a sweep early,
because a partition that can move proves that the assignment is not balanced. This module therefore omits the test. The
least loaded subscriber comes from a tournament tree instead of a walk over a sorted set.

Kafka's loop may run forever. Instead of the chosen partition, it may move another partition of the topic that moved in
the opposite direction before. This other partition may belong to a third member. If a sweep ends in an earlier state,
the same sweeps repeat forever. This code detects the repetition (Brent's method) and then uses the most balanced
assignment with the fewest moves.
"""


from libc.string cimport memcmp, memcpy, memset

from kcore_ext.assign.containers cimport (
    IntVec,
    Memory,
    copied,
    first_of,
    flags,
    i64,
    ints,
    longs,
    nones,
    pair,
    push,
    reserve,
    second_of,
    sort_ints,
    sort_longs,
    zeros,
)
from kcore_ext.assign.flow cimport least_imbalance
from kcore_ext.assign.heaps cimport Loads, change_load, least_of_cell, least_of_class, seat
from kcore_ext.assign.moves cimport Moves, actual_partition, record_move, start_moves
from kcore_ext.assign.problem cimport Problem
from kcore_ext.assign.sticky cimport Front

# Far more sweeps than a run that ends by itself needs. Limits the time if the states repeat after a long period.
cdef enum:
    MOST_SWEEPS = 1000


cdef struct State:
    Memory* memory
    int* owner
    int* topic_of                  # partitions
    const int* older               # partitions: see Front; NULL: none
    Loads loads
    Moves moves
    bint endless  # a state repeated


cdef bint _drop_invalid(Problem p, bint rack_aware, int* owner) noexcept nogil:
    """Removes owners that are no longer eligible. Returns True if a partition had to be revoked for its rack or
    subscription.
    """
    cdef int t, q, m, k
    cdef bint revoked = False, subscribed = False
    for t in range(p.topics):
        if not p.subscribed[t]:
            for q in range(p.first[t], p.first[t + 1]):
                owner[q] = -1
            continue
        k = -1
        for q in range(p.first[t], p.first[t + 1]):
            m = owner[q]
            if m < 0:
                continue
            # Neighbouring partitions often have owners of one kind.
            if p.kind_of[m] != k:
                k = p.kind_of[m]
                subscribed = p.subscribes(m, t)
            if not subscribed or (rack_aware and p.member_rack[m] >= 0 and not p.on_rack(q, p.member_rack[m])):
                owner[q] = -1
                revoked = True
    return revoked


cdef int _fill(Problem p, bint rack_aware, const IntVec* unassigned, State* state) noexcept nogil:
    """Assigns each partition to the least loaded subscriber: first on its rack, then anywhere."""
    cdef Loads* loads = &state.loads
    cdef int i, q, m, cell, c, rack
    cdef i64 best
    if rack_aware:
        for i in range(<int>unassigned.size):
            q = unassigned.at[i]
            c = p.class_of[state.topic_of[q]]
            best = -1
            for cell in range(loads.class_cell_first[c], loads.class_cell_first[c + 1]):
                rack = loads.cell_rack[cell]
                if (rack < 0 or p.on_rack(q, rack)) and (best < 0 or least_of_cell(loads, cell) < best):
                    best = least_of_cell(loads, cell)
            if best >= 0:
                state.owner[q] = second_of(best)
                change_load(loads, second_of(best), 1)
    for i in range(<int>unassigned.size):
        q = unassigned.at[i]
        if state.owner[q] < 0:
            m = second_of(least_of_class(loads, p.class_of[state.topic_of[q]]))
            state.owner[q] = m
            change_load(loads, m, 1)
    return 0


cdef int _sweep(Problem p, const IntVec* partitions, State* state) except -1 nogil:
    """Makes one pass over the partitions; returns True if one moved."""
    cdef Loads* loads = &state.loads
    cdef int i, q, t, m, to, back
    cdef i64 least
    cdef bint modified = False
    for i in range(<int>partitions.size):
        q = partitions.at[i]
        m = state.owner[q]
        t = state.topic_of[q]
        to = -1
        if state.older != NULL:
            back = state.older[q]
            # Kafka does not check that the older owner still subscribes. This code does, so that the result stays
            # valid.
            if back >= 0 and loads.load[m] > loads.load[back] + 1 and p.subscribes(back, t):
                to = back
        if to < 0:
            least = least_of_class(loads, p.class_of[t])
            if loads.load[m] <= first_of(least) + 1:
                continue
            to = second_of(least)
        q = actual_partition(&state.moves, t, q, m, to)
        m = state.owner[q]
        record_move(&state.moves, t, q, m, to)
        state.owner[q] = to
        change_load(loads, m, -1)
        change_load(loads, to, 1)
        modified = True
    return modified


cdef int _reassign(Problem p, const IntVec* partitions, State* state) except -1 nogil:
    """Repeats sweeps until a sweep changes nothing. Sets `endless` when a state repeats. Returns the number of sweeps
    that moved a partition.
    """
    cdef size_t size = p.partitions * sizeof(int)
    cdef int* seen_owner = NULL
    cdef int* seen_source = NULL
    cdef int* seen_target = NULL
    cdef int sweeps = 0, power = 1
    while _sweep(p, partitions, state):
        sweeps += 1
        if sweeps > MOST_SWEEPS or (sweeps > 1 and memcmp(state.owner, seen_owner, size) == 0
                                    and memcmp(state.moves.source, seen_source, size) == 0
                                    and memcmp(state.moves.target, seen_target, size) == 0):
            state.endless = True
            break
        if sweeps == 1:
            seen_owner = ints(state.memory, p.partitions)
            seen_source = ints(state.memory, p.partitions)
            seen_target = ints(state.memory, p.partitions)
        if sweeps == power:
            memcpy(seen_owner, state.owner, size)
            memcpy(seen_source, state.moves.source, size)
            memcpy(seen_target, state.moves.target, size)
            power *= 2
    return sweeps


cdef i64 _score(Problem p, Memory* memory, const int* owner, const char* fixed) except -1 nogil:
    """Returns the sum of the load differences of all pairs of members, without the members in `fixed`."""
    cdef int* count = zeros(memory, p.members)
    cdef i64 total = 0
    cdef int q, m, i, n = 0
    for q in range(p.partitions):
        if owner[q] >= 0:
            count[owner[q]] += 1
    for m in range(p.members):
        if not fixed[m]:
            count[n] = count[m]
            n += 1
    sort_ints(count, n)
    for i in range(n):
        total += <i64>(2 * i - n + 1) * count[i]
    return total


cdef char* _find_fixed(Problem p, const IntVec* movable, State* state) except NULL nogil:
    """Finds the members that own every partition of their topics and whose partitions no other member can own."""
    cdef char* fixed = flags(state.memory, p.members, True)
    cdef int* most = nones(state.memory, p.kinds)
    cdef int m, i, k
    for i in range(<int>movable.size):
        if state.owner[movable.at[i]] >= 0:
            fixed[state.owner[movable.at[i]]] = 0
    for m in range(p.members):
        if not fixed[m]:
            continue
        k = p.kind_of[m]
        if most[k] < 0:
            most[k] = 0
            for i in range(p.kind_first[k], p.kind_first[k + 1]):
                most[k] += p.first[p.kind_topics[i] + 1] - p.first[p.kind_topics[i]]
        fixed[m] = state.loads.load[m] >= most[k]
    return fixed


cdef int _sequence(Problem p, Memory* memory, IntVec* out, IntVec* movable) except -1 nogil:
    """Orders all partitions: topics by number of subscribers, then by name.

    `movable` gets the partitions with at least two subscribers.
    """
    cdef i64* keyed = longs(memory, p.topics)
    cdef int t, i, q, c, at = 0, alone = 0, count = 0
    for t in range(p.topics):
        c = p.class_of[t]
        if c >= 0:
            keyed[count] = pair(p.class_first[c + 1] - p.class_first[c], t)
            count += 1
    sort_longs(keyed, count)
    reserve(memory, out, p.partitions)
    for i in range(count):
        t = second_of(keyed[i])
        for q in range(p.first[t], p.first[t + 1]):
            out.at[at] = q
            at += 1
        if first_of(keyed[i]) < 2:
            alone = at
    out.size = at
    movable.at = out.at + alone
    movable.size = at - alone
    return 0


cdef int _start(Problem p, Memory* memory, Front* front, State* state) except -1 nogil:
    """Initialises `state` with the owners in `front` and their loads. Returns 1 if no member owns a partition."""
    cdef int q, nothing = 1
    memset(state, 0, sizeof(State))
    state.memory = memory
    state.owner = front.owner
    state.older = front.older
    state.topic_of = ints(memory, p.partitions)
    p.topic_of_each(state.topic_of)
    state.loads.load = zeros(memory, p.members)
    for q in range(p.partitions):
        if state.owner[q] >= 0:
            state.loads.load[state.owner[q]] += 1
            nothing = 0
    seat(p, memory, front.rack_aware, &state.loads)
    start_moves(&state.moves, memory, p.partitions)
    return nothing


cdef int _balance(Problem p, State* state, const IntVec* movable, const IntVec* unassigned, bint revoked,
                  bint initializing) except -1 nogil:
    """Moves first the new partitions and then all partitions; reverts the moves if they do not improve the balance."""
    cdef Memory* memory = state.memory
    cdef int* before = copied(memory, state.owner, p.partitions)
    cdef char* fixed = NULL
    cdef IntVec fresh = unassigned[0]
    cdef int c
    if not initializing:
        fixed = _find_fixed(p, movable, state)
    if not revoked:
        # Partitions with a single possible owner come first and cannot move.
        while fresh.size:
            c = p.class_of[state.topic_of[fresh.at[0]]]
            if p.class_first[c + 1] - p.class_first[c] >= 2:
                break
            fresh.at += 1
            fresh.size -= 1
        _reassign(p, &fresh, state)
    if state.endless or not _reassign(p, movable, state) or state.endless or initializing:
        return 0
    if _score(p, memory, state.owner, fixed) >= _score(p, memory, before, fixed):
        memcpy(state.owner, before, p.partitions * sizeof(int))
    return 0


cdef int general(Problem p, Memory* memory, Front* front) except -1 nogil:
    """Replaces the earlier owners in `front.owner` by the new owners."""
    cdef int* settled = copied(memory, front.owner, p.partitions)
    cdef IntVec sequence = IntVec(NULL, 0, 0), unassigned = IntVec(NULL, 0, 0), movable = IntVec(NULL, 0, 0)
    cdef State state
    cdef int i
    cdef bint revoked, initializing
    p.ensure_classes()
    revoked = _drop_invalid(p, front.rack_aware, front.owner)
    initializing = _start(p, memory, front, &state)
    _sequence(p, memory, &sequence, &movable)
    for i in range(<int>sequence.size):
        if state.owner[sequence.at[i]] < 0:
            push(memory, &unassigned, sequence.at[i])
    _fill(p, front.rack_aware, &unassigned, &state)
    _balance(p, &state, &movable, &unassigned, revoked, initializing)
    if state.endless:
        least_imbalance(p, memory, settled, front.rack_aware, state.owner)
    return 0
