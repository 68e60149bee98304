"""The sticky and cooperative-sticky assignors.

They resolve conflicting claims, and then run the algorithm for equal or the algorithm for unequal subscriptions. The
cooperative-sticky assignor finally withholds the partitions that move between members (KIP-429).
"""


from libc.string cimport memset

from kcore_ext.assign.constrained cimport constrained
from kcore_ext.assign.containers cimport IntVec, Memory, Scratch, copied, fill, flags, nones, push, zeros
from kcore_ext.assign.general cimport general
from kcore_ext.assign.lower cimport OWNED, USER_DATA, Lowered, lower
from kcore_ext.assign.problem cimport SMALL_GROUP, Problem, as_array, checked_owner, new_array
from kcore_ext.assign.result cimport GroupAssignment


cdef int settle(Problem p, Memory* memory, Front* front) except -1 nogil:
    """Resolves conflicting claims, in which several members report one partition as owned (KIP-792).

    The newer generation wins; two claims of one generation are invalid.
    """
    cdef int* marker
    cdef int* older_generation = NULL
    cdef int m, i, q, other, mine, largest = -1
    cdef bint any_older = False
    front.rack_aware = p.rack_aware(memory)
    if front.given or p.has_owner or not p.has_claims:
        if not front.given:
            p.owners_of_claims(front.owner)
        return _older_owners(p, memory, front)
    fill(front.owner, p.partitions, -1)
    marker = nones(memory, p.partitions)
    for m in range(p.members):
        mine = p.generation[m] if p.generation != NULL else -1
        largest = max(largest, mine)
        for i in range(p.claim_first[m], p.claim_first[m + 1]):
            q = p.claims.at[i]
            other = marker[q]
            if other < 0:
                front.owner[q] = m
                marker[q] = m
                continue
            if other == m:
                continue
            # Kafka compares with the generation in the other's subscription, not in its user data.
            other = p.subscription_generation[other] if p.subscription_generation != NULL else -1
            if mine == other:
                if front.doubly == NULL:
                    front.doubly = flags(memory, p.partitions, False)
                front.doubly[q] = 1
                if front.owner[q] == marker[q]:
                    front.owner[q] = -1
                marker[q] = m
            elif mine > other:
                front.owner[q] = m
                marker[q] = m
    for m in range(p.members):
        mine = p.generation[m] if p.generation != NULL else -1
        if mine < largest and p.claim_first[m] < p.claim_first[m + 1]:
            if not any_older:
                any_older = True
                front.older = nones(memory, p.partitions)
                older_generation = zeros(memory, p.partitions)
            for i in range(p.claim_first[m], p.claim_first[m + 1]):
                q = p.claims.at[i]
                if front.older[q] < 0 or mine > older_generation[q]:
                    front.older[q] = m
                    older_generation[q] = mine
    return 0


cdef int _older_owners(Problem p, Memory* memory, Front* front) except -1 nogil:
    """Fills `front.older` with the owners whose generation is not the newest. Called only if no claims conflict."""
    cdef int m, q, largest = -1
    cdef bint differ = False
    if p.generation == NULL:
        return 0
    for m in range(p.members):
        if m and p.generation[m] != p.generation[m - 1]:
            differ = True
        largest = max(largest, p.generation[m])
    if not differ:
        return 0
    front.older = nones(memory, p.partitions)
    for q in range(p.partitions):
        if front.owner[q] >= 0 and p.generation[front.owner[q]] < largest:
            front.older[q] = front.owner[q]
    return 0


cdef int _withhold(Problem p, Memory* memory, const int* before, int* owner, IntVec* withheld) except -1 nogil:
    """Withholds partitions that move between members, after the algorithm for unequal subscriptions (KIP-429).

    `before` has the earlier owners. It is NULL if several members may report one partition as owned. Then one of them
    may keep the partition while another loses it.
    """
    cdef char* leaves
    cdef char* stays
    cdef int m, i, q
    if before == NULL:
        leaves = flags(memory, p.partitions, False)
        stays = flags(memory, p.partitions, False)
        for m in range(p.members):
            for i in range(p.claim_first[m], p.claim_first[m + 1]):
                q = p.claims.at[i]
                if owner[q] == m:
                    stays[q] = 1
                else:
                    leaves[q] = 1
        for q in range(p.partitions):
            if owner[q] >= 0 and leaves[q] and not stays[q]:
                push(memory, withheld, q)
    else:
        for q in range(p.partitions):
            if owner[q] >= 0 and before[q] >= 0 and before[q] != owner[q]:
                push(memory, withheld, q)
    for i in range(<int>withheld.size):
        owner[withheld.at[i]] = -1
    return 0


cdef int solve(Problem p, Memory* memory, Front* front, bint cooperative, IntVec* withheld) except -1 nogil:
    """Runs the algorithm for equal or unequal subscriptions. With `cooperative`, withholds partitions that move."""
    cdef int i
    cdef int* before = NULL
    cdef bint exclusive = front.given or p.has_owner or not p.has_claims
    if p.members == 0:
        fill(front.owner, p.partitions, -1)
        return 0
    settle(p, memory, front)
    if p.equal:
        constrained(p, memory, front, withheld)
        if cooperative:
            for i in range(<int>withheld.size):
                front.owner[withheld.at[i]] = -1
        else:
            withheld.size = 0
    else:
        if cooperative and exclusive:
            before = copied(memory, front.owner, p.partitions)
        general(p, memory, front)
        if cooperative:
            _withhold(p, memory, before, front.owner, withheld)
    return 0


def run(Problem problem not None, previous=None, bint cooperative=False):
    """Runs the assignor `sticky` over arrays.

    `previous` is an owner array; None: the partitions that the members report as owned. Returns the tuple (owner of
    every partition, withheld partitions).
    """
    cdef Scratch scratch = Scratch.__new__(Scratch)
    cdef IntVec withheld = IntVec(NULL, 0, 0)
    cdef Front front
    memset(&front, 0, sizeof(front))
    out = new_array(problem.partitions, &front.owner)
    if previous is not None:
        checked_owner(problem, previous, front.owner)
        front.given = True
    if problem.members + problem.partitions < SMALL_GROUP:
        solve(problem, &scratch.memory, &front, cooperative, &withheld)
    else:
        with nogil:
            solve(problem, &scratch.memory, &front, cooperative, &withheld)
    return out, as_array(withheld.at, withheld.size)


def assign(members, topics, bint cooperative, previous=None):
    """Runs the assignor `sticky` over value objects; returns a GroupAssignment.

    `previous` replaces the partitions that the members report as owned.
    """
    cdef Lowered low = lower(members, topics, OWNED if cooperative else USER_DATA, True, previous)
    cdef Scratch scratch = Scratch.__new__(Scratch)
    cdef GroupAssignment out = low.exclusive()
    cdef IntVec withheld = IntVec(NULL, 0, 0)
    cdef Front front
    memset(&front, 0, sizeof(front))
    front.owner = out.owner
    with nogil:
        solve(low.problem, &scratch.memory, &front, cooperative, &withheld)
    out.withheld_rows = copied(&out.memory, withheld.at, withheld.size)
    out.withheld_count = <int>withheld.size
    return out
