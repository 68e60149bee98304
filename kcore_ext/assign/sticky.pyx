# distutils: language = c++
"""Sticky and cooperative-sticky: claims are settled, then one of two paths runs, then moves are withheld."""

from libcpp.vector cimport vector

from kcore_ext.assign.constrained cimport constrained
from kcore_ext.assign.general cimport general
from kcore_ext.assign.lower cimport OWNED, USER_DATA, Lowered, lower
from kcore_ext.assign.problem cimport Problem, as_array, checked_owner


cdef int settle(Problem p, Front& front) noexcept nogil:
    """Decides conflicting claims: the larger generation has it, equal ones lose it both (KIP-792)."""
    cdef vector[int] marker, older_generation
    cdef int m, i, q, other, mine, largest = -1
    cdef bint any_older = False
    front.rack_aware = p.rack_aware()
    if front.given or p.has_owner or not p.has_claims:
        if not front.given:
            p.owners_of_claims(front.owner)
        _older_owners(p, front)
        return 0
    front.owner.assign(p.partitions, -1)
    marker.assign(p.partitions, -1)
    for m in range(p.members):
        mine = <int>p.generation[m] if p.generation.size() else -1
        largest = max(largest, mine)
        for i in range(p.claim_first[m], p.claim_first[m + 1]):
            q = p.claims[i]
            other = marker[q]
            if other < 0:
                front.owner[q] = m
                marker[q] = m
                continue
            if other == m:
                continue
            # Kafka compares with the generation in the other's subscription, not in its user data.
            other = <int>p.subscription_generation[other] if p.subscription_generation.size() else -1
            if mine == other:
                if front.doubly.empty():
                    front.doubly.assign(p.partitions, 0)
                front.doubly[q] = 1
                if front.owner[q] == marker[q]:
                    front.owner[q] = -1
                marker[q] = m
            elif mine > other:
                front.owner[q] = m
                marker[q] = m
    for m in range(p.members):
        mine = <int>p.generation[m] if p.generation.size() else -1
        if mine < largest and p.claim_first[m] < p.claim_first[m + 1]:
            if not any_older:
                any_older = True
                front.older.assign(p.partitions, -1)
                older_generation.assign(p.partitions, 0)
            for i in range(p.claim_first[m], p.claim_first[m + 1]):
                q = p.claims[i]
                if front.older[q] < 0 or mine > older_generation[q]:
                    front.older[q] = m
                    older_generation[q] = mine
    return 0


cdef int _older_owners(Problem p, Front& front) noexcept nogil:
    """With one owner a partition there is no conflict; an owner of an older generation is still remembered."""
    cdef int m, q, largest = -1
    cdef bint differ = False
    if p.generation.empty():
        return 0
    for m in range(p.members):
        if m and p.generation[m] != p.generation[m - 1]:
            differ = True
        largest = max(largest, <int>p.generation[m])
    if not differ:
        return 0
    front.older.assign(p.partitions, -1)
    for q in range(p.partitions):
        if front.owner[q] >= 0 and p.generation[front.owner[q]] < largest:
            front.older[q] = front.owner[q]
    return 0


cdef int _withhold(Problem p, bint exclusive, vector[int]& before, vector[int]& owner, vector[int]& withheld) noexcept nogil:
    """General path: what somebody gets and somebody else has to give up goes to nobody yet (KIP-429)."""
    cdef vector[char] leaves, stays
    cdef int m, i, q
    if not exclusive:
        leaves.assign(p.partitions, 0)
        stays.assign(p.partitions, 0)
        for m in range(p.members):
            for i in range(p.claim_first[m], p.claim_first[m + 1]):
                q = p.claims[i]
                if owner[q] == m:
                    stays[q] = 1
                else:
                    leaves[q] = 1
        for q in range(p.partitions):
            if owner[q] >= 0 and leaves[q] and not stays[q]:
                withheld.push_back(q)
    else:
        for q in range(p.partitions):
            if owner[q] >= 0 and before[q] >= 0 and before[q] != owner[q]:
                withheld.push_back(q)
    for q in withheld:
        owner[q] = -1
    return 0


cdef int solve(Problem p, Front& front, bint cooperative, vector[int]& owner, vector[int]& withheld) noexcept nogil:
    """Runs the path that the subscriptions call for and, if cooperative, withholds what moves."""
    cdef int q
    cdef vector[int] before
    cdef bint exclusive = front.given or p.has_owner or not p.has_claims
    if p.members == 0:
        owner.assign(p.partitions, -1)
        return 0
    settle(p, front)
    if p.equal:
        constrained(p, front, owner, withheld)
        if cooperative:
            for q in withheld:
                owner[q] = -1
        else:
            withheld.clear()
    else:
        if cooperative and exclusive:
            before = front.owner
        general(p, front, owner)
        if cooperative:
            _withhold(p, exclusive, before, owner, withheld)
    return 0


def run(Problem problem not None, previous=None, bint cooperative=False):
    """Sticky over arrays. `previous`: owner array (None: the problem's claims). Returns (owner, withheld partitions)."""
    cdef vector[int] owner, withheld
    cdef Front front
    if previous is not None:
        checked_owner(problem, previous, front.owner)
        front.given = True
    if problem.members + problem.partitions < 4096:
        # Letting go of the interpreter lock costs more than so small a group.
        solve(problem, front, cooperative, owner, withheld)
    else:
        with nogil:
            solve(problem, front, cooperative, owner, withheld)
    return as_array(owner), as_array(withheld)


def assign(members, topics, bint cooperative, previous=None):
    """Sticky over value objects; returns a GroupAssignment. `previous` replaces what the members claim."""
    cdef Lowered low = lower(members, topics, OWNED if cooperative else USER_DATA, True, previous)
    cdef vector[int] owner, withheld
    cdef Front front
    with nogil:
        solve(low.problem, front, cooperative, owner, withheld)
    out = low.exclusive(owner)
    out.withheld_rows.swap(withheld)
    return out
