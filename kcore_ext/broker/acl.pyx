"""The compiled index of access control lists, and the decision of their authorizer.

`kcore.broker.acl.entries` documents the rules. A test compares the decision with a linear search.
"""

from cpython.dict cimport PyDict_GetItemWithError, PyDict_Next
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_Substring, PyUnicode_Tailmatch

cdef enum:              # numbers of Kafka's `AclOperation`, `AclPermissionType` and `PatternType`
    ALL = 2
    DENY = 2
    ALLOW = 3
    LITERAL = 3

cdef enum:
    MAX_HOSTS = 1_000   # cached canonical hosts; a full cache is cleared
    FROM_START = -1     # argument of `PyUnicode_Tailmatch`

cdef str WILDCARD = "*"
cdef str ANY_PRINCIPAL = "User:*"


cdef inline object _rule(int operation, int permission):
    """Returns a number that encodes an operation and a permission, each in one byte."""
    return operation << 8 | permission & 0xFF


cdef inline int _permission(int rule) noexcept:
    return <signed char>(rule & 0xFF)


cdef class OwnAcls:
    """The entries of one principal for one resource type.

    The entries of a pattern are a dictionary: canonical host -> rule -> number of entries. A rule is an operation and a
    permission (`_rule`). An address has many notations, so several entries may define the same rule.
    """

    cdef dict literal       # name -> the entries of the pattern
    cdef dict prefixed      # length of the prefix -> prefix -> the entries of the pattern

    def __cinit__(self):
        self.literal = {}
        self.prefixed = {}

    cdef dict patterns(self, int pattern_type, str name):
        """Returns the table for a pattern: that of the literal names, or that of the prefixes with the pattern's
        length. Adds the table if it is missing.
        """
        if pattern_type == LITERAL:
            return self.literal
        return <dict>self.prefixed.setdefault(len(name), {})

    cdef int decide(self, str host, int operation, object implied_by, str name) except -1:
        """Decides by the entries that cover a name: returns DENY, ALLOW, or 0 if no entry is for the operation."""
        cdef PyObject* found = PyDict_GetItemWithError(self.literal, name)
        cdef PyObject* length = NULL
        cdef PyObject* prefixes = NULL
        cdef PyObject* prefix = NULL
        cdef Py_ssize_t position = 0, first, size
        cdef int decision = 0
        if found is not NULL:
            decision = _of_pattern(<dict>found, host, operation, implied_by)
            if decision == DENY:
                return DENY
        found = PyDict_GetItemWithError(self.literal, WILDCARD)
        if found is not NULL:
            decision = _stronger(decision, _of_pattern(<dict>found, host, operation, implied_by))
            if decision == DENY:
                return DENY
        while PyDict_Next(self.prefixed, &position, &length, &prefixes):
            size = <object>length
            if size > len(name):
                continue
            if len(<dict>prefixes) == 1:
                first = 0
                PyDict_Next(<dict>prefixes, &first, &prefix, &found)
                if not PyUnicode_Tailmatch(name, <str>prefix, 0, size, FROM_START):
                    continue
            else:
                found = PyDict_GetItemWithError(<dict>prefixes, PyUnicode_Substring(name, 0, size))
            if found is not NULL:
                decision = _stronger(decision, _of_pattern(<dict>found, host, operation, implied_by))
                if decision == DENY:
                    return DENY
        return decision


cdef inline int _stronger(int decision, int other) noexcept:
    """Returns the stronger decision: DENY overrides ALLOW, and ALLOW overrides no decision."""
    if decision == DENY or other == DENY:
        return DENY
    return decision or other


cdef int _of_pattern(dict hosts, str host, int operation, object implied_by) except -1:
    """Decides by those entries of one pattern that apply to a host."""
    cdef PyObject* rules = PyDict_GetItemWithError(hosts, WILDCARD)
    cdef int decision = 0
    if rules is not NULL:
        decision = _of_rules(<dict>rules, operation, implied_by)
    rules = PyDict_GetItemWithError(hosts, host)
    if rules is not NULL:
        decision = _stronger(decision, _of_rules(<dict>rules, operation, implied_by))
    return decision


cdef int _of_rules(dict rules, int operation, object implied_by) except -1:
    cdef PyObject* key = NULL
    cdef PyObject* count = NULL
    cdef Py_ssize_t position = 0
    cdef int rule, permission, granted, decision = 0
    while PyDict_Next(rules, &position, &key, &count):
        rule = <object>key
        permission, granted = _permission(rule), rule >> 8
        if permission == DENY:
            if granted == operation or granted == ALL:
                return DENY
        elif permission == ALLOW:
            if granted == operation or granted == ALL or (implied_by is not None and granted in implied_by):
                decision = ALLOW
    return decision


cdef class AclTableCore:
    """Documented in acl.pyi."""

    cdef dict _own          # resource type -> principal -> OwnAcls
    cdef dict _names        # resource type -> literal name -> number of its entries
    cdef dict _prefixes     # resource type -> length -> prefix -> number of its entries
    cdef dict _implied_by
    cdef dict _hosts        # the host of a client, as in its context -> its canonical notation
    cdef object _canonical

    def __init__(self, dict implied_by not None, canonical):
        self._own = {}
        self._names = {}
        self._prefixes = {}
        self._implied_by = implied_by
        self._hosts = {}
        self._canonical = canonical

    def add_rule(
        self, int resource_type, str name not None, int pattern_type, str principal not None, str host not None,
        int operation, int permission,
    ):
        cdef dict patterns, rules, principals
        cdef OwnAcls own
        cdef str canonical = self._canonical(host)
        principals = self._own.setdefault(resource_type, {})
        own = principals.get(principal)
        if own is None:
            own = principals[principal] = OwnAcls()
        patterns = own.patterns(pattern_type, name)
        rules = patterns.setdefault(name, {}).setdefault(canonical, {})
        rule = _rule(operation, permission)
        rules[rule] = rules.get(rule, 0) + 1
        patterns = self._covered(resource_type, pattern_type, name)
        patterns[name] = patterns.get(name, 0) + 1

    cdef dict _covered(self, int resource_type, int pattern_type, str name):
        """Returns the table that contains `name`: pattern name -> number of entries. A resource type has one table for
        its literal names, and one table for each length of a prefix.
        """
        if pattern_type == LITERAL:
            return <dict>self._names.setdefault(resource_type, {})
        return <dict>self._prefixes.setdefault(resource_type, {}).setdefault(len(name), {})

    def remove_rule(
        self, int resource_type, str name not None, int pattern_type, str principal not None, str host not None,
        int operation, int permission,
    ):
        cdef dict principals = self._own[resource_type]
        cdef OwnAcls own = principals[principal]
        cdef dict patterns = own.patterns(pattern_type, name)
        cdef dict hosts = patterns[name]
        cdef str canonical = self._canonical(host)
        cdef dict rules = hosts[canonical]
        _decrement(rules, _rule(operation, permission))
        if not rules:
            del hosts[canonical]
        if not hosts:
            del patterns[name]
        if not patterns and pattern_type != LITERAL:
            del own.prefixed[len(name)]
        if not own.literal and not own.prefixed:
            del principals[principal]
        patterns = self._covered(resource_type, pattern_type, name)
        _decrement(patterns, name)
        if not patterns and pattern_type != LITERAL:
            del self._prefixes[resource_type][len(name)]

    def names_of(self, principal, client_host, int operation, int resource_type):
        cdef OwnAcls own
        cdef PyObject* name = NULL
        cdef PyObject* hosts = NULL
        cdef Py_ssize_t position
        cdef str host = self.host_of(client_host)
        cdef set granted = set(), granted_prefixes = set(), denied = set(), denied_prefixes = set()
        cdef dict principals = self._own.get(resource_type, {})
        for owner in {principal, ANY_PRINCIPAL}:
            own = principals.get(owner)
            if own is None:
                continue
            position = 0
            while PyDict_Next(own.literal, &position, &name, &hosts):
                _collect(granted, denied, <str>name, <dict>hosts, host, operation)
            for prefixes in own.prefixed.values():
                position = 0
                while PyDict_Next(<dict?>prefixes, &position, &name, &hosts):
                    _collect(granted_prefixes, denied_prefixes, <str>name, <dict>hosts, host, operation)
        return granted, granted_prefixes, denied, denied_prefixes

    def decide(self, principal, client_host, int operation, int resource_type, str name not None):
        cdef int decision = self.decision(principal, client_host, operation, resource_type, name)
        if decision:
            return decision == ALLOW
        return False if self.is_covered(resource_type, name) else None

    @property
    def patterns(self):
        """The number of different patterns of all entries."""
        cdef Py_ssize_t count = 0
        for names in self._names.values():
            count += len(names)
        for lengths in self._prefixes.values():
            for names in lengths.values():
                count += len(names)
        return count

    @property
    def principals(self):
        """The number of principals with entries, each counted once for each resource type."""
        return sum([len(principals) for principals in self._own.values()])

    cdef str host_of(self, object client_host):
        """Returns the canonical notation of a client's host, which may begin with a slash."""
        cdef PyObject* found = PyDict_GetItemWithError(self._hosts, client_host)
        if found is not NULL:
            return <str>found
        cdef str host = self._canonical(client_host.removeprefix("/"))
        if len(self._hosts) >= MAX_HOSTS:
            self._hosts.clear()
        self._hosts[client_host] = host
        return host

    cdef int decision(
        self, object principal, object client_host, int operation, int resource_type, str name,
    ) except -1:
        """Decides by the entries of a client: returns DENY, ALLOW, or 0 if no entry is for the operation."""
        cdef PyObject* principals = PyDict_GetItemWithError(self._own, resource_type)
        cdef PyObject* own
        cdef PyObject* implying
        cdef int decision = 0
        if principals is NULL:
            return 0
        cdef str host = self.host_of(client_host)
        implying = PyDict_GetItemWithError(self._implied_by, operation)
        implied_by = None if implying is NULL else <object>implying
        own = PyDict_GetItemWithError(<dict>principals, ANY_PRINCIPAL)
        if own is not NULL:
            decision = (<OwnAcls>own).decide(host, operation, implied_by, name)
            if decision == DENY:
                return DENY
        own = PyDict_GetItemWithError(<dict>principals, principal)
        if own is not NULL:
            decision = _stronger(decision, (<OwnAcls>own).decide(host, operation, implied_by, name))
        return decision

    cdef bint is_covered(self, int resource_type, str name) except -1:
        """Returns True if an entry of any principal covers a resource."""
        names = self._names.get(resource_type, ())
        if name in names or WILDCARD in names:
            return True
        for length, prefixes in self._prefixes.get(resource_type, {}).items():
            if length <= len(name) and name[:length] in prefixes:
                return True
        return False


cdef int _decrement(dict counts, key) except -1:
    """Subtracts one, and removes a count of zero."""
    count = counts[key] - 1
    if count:
        counts[key] = count
    else:
        del counts[key]
    return 0


cdef int _collect(set granted, set denied, str name, dict hosts, str host, int operation) except -1:
    """Adds the name of a pattern to `granted`, `denied` or both, by the entries of the pattern for a host."""
    cdef PyObject* rules = PyDict_GetItemWithError(hosts, WILDCARD)
    if rules is not NULL:
        _collect_by_rules(granted, denied, name, <dict>rules, operation)
    rules = PyDict_GetItemWithError(hosts, host)
    if rules is not NULL:
        _collect_by_rules(granted, denied, name, <dict>rules, operation)
    return 0


cdef int _collect_by_rules(set granted, set denied, str name, dict rules, int operation) except -1:
    cdef PyObject* key = NULL
    cdef PyObject* count = NULL
    cdef Py_ssize_t position = 0
    cdef int rule
    while PyDict_Next(rules, &position, &key, &count):
        rule = <object>key
        if rule >> 8 == operation or rule >> 8 == ALL:
            if _permission(rule) == ALLOW:
                granted.add(name)
            elif _permission(rule) == DENY:
                denied.add(name)
    return 0


cdef class AclAuthorizerCore:
    """Documented in acl.pyi."""

    cdef public frozenset super_users
    cdef object _topics
    cdef bint _allow_if_none

    def __init__(self, topics, frozenset super_users not None, bint allow_if_none):
        self._topics = topics
        self.super_users = super_users
        self._allow_if_none = allow_if_none

    def allowed(self, context, operation, resource_type, str resource_name not None):
        cdef object principal = context.principal
        cdef AclTableCore table
        cdef int decision, resource_number = resource_type
        if principal in self.super_users:
            return True
        client_host = context.client_host
        table = <AclTableCore?>self._topics.image.acls
        decision = table.decision(principal, client_host, operation, resource_number, resource_name)
        if decision == ALLOW:
            return True
        if not decision and self._allow_if_none and not table.is_covered(resource_number, resource_name):
            return True
        self.denied(principal, client_host, operation, resource_type, resource_name)
        return False
