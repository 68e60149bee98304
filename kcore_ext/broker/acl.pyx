"""The compiled decision about one resource from the access control lists that cover it.

`kcore.broker.acl.entries` has the rules and keeps the entries. A test compares the decision with a linear search.
"""

cdef enum:              # numbers of Kafka's `AclOperation` and `AclPermissionType`
    ALL = 2
    DENY = 2
    ALLOW = 3

cdef str WILDCARD = "*"


def decide(
    dict literal not None, dict prefixed not None, lengths, tuple owners not None, implied_by,
    int operation, int resource_type, str name not None,
):
    cdef bint covered = False, allowed = False
    cdef object resource = resource_type
    cdef Py_ssize_t length
    cdef int found
    rules = literal.get((resource, name))
    if rules is not None:
        covered = True
        found = _decide_pattern(<dict?>rules, owners, implied_by, operation)
        if found == DENY:
            return False
        allowed = found == ALLOW
    if name != WILDCARD:
        rules = literal.get((resource, WILDCARD))
        if rules is not None:
            covered = True
            found = _decide_pattern(<dict?>rules, owners, implied_by, operation)
            if found == DENY:
                return False
            allowed = allowed or found == ALLOW
    for length in lengths:
        if length > len(name):
            continue
        rules = prefixed.get((resource, name[:length]))
        if rules is not None:
            covered = True
            found = _decide_pattern(<dict?>rules, owners, implied_by, operation)
            if found == DENY:
                return False
            allowed = allowed or found == ALLOW
    return allowed if covered else None


cdef int _decide_pattern(dict rules, tuple owners, implied_by, int operation) except -1:
    """Decides from the entries of one pattern: DENY, ALLOW, or 0 if no entry is for the operation."""
    cdef int entry_operation, permission, found = 0
    for owner in owners:
        counts = rules.get(owner)
        if counts is None:
            continue
        for rule in counts:
            entry_operation, permission = rule
            if (
                entry_operation == operation
                or entry_operation == ALL
                or (permission == ALLOW and implied_by and entry_operation in implied_by)
            ):
                if permission == DENY:
                    return DENY
                found = ALLOW
    return found
