"""The sticky task assignor of streams groups (KIP-1071): active tasks first, then standbys."""

from collections.abc import Mapping

from cpython.ref cimport PyObject

from libc.string cimport memset

from kcore_ext.assign.claims cimport ClaimReader, claim_reader
from kcore_ext.assign.containers cimport IntVec, Memory, Scratch, copied, fill, flags, ints, nones, push, take, zeros
from kcore_ext.assign.ids cimport order_of_ids
from kcore_ext.assign.lower cimport Lowered, take_ids
from kcore_ext.assign.model cimport MOST_PARTITIONS, Topics
from kcore_ext.assign.problem cimport Problem, as_array, checked_owner, checked_rows, new_array, numbers_of
from kcore_ext.assign.result cimport GroupAssignment


cdef struct Quota:
    int tasks                      # left
    int members                    # left
    int each  # tasks per member


cdef struct Heap:
    # A binary heap with the exact layout rules of java.util.PriorityQueue, which decide among equal keys.
    int* items
    int size


cdef struct Streams:
    Memory* memory
    int members
    int processes
    int tasks
    int replicas
    int* process_of                # members
    int* member_first              # processes -> members in id order
    int* member_list
    int* number                    # tasks: partition
    char* stateful                 # tasks
    int* previous_active           # tasks: member, -1
    int* standby_first             # tasks -> members that had it as a standby
    int* standby
    int* active                    # result: tasks -> member
    int* last_standby              # result: tasks -> the entry added last, -1: none
    IntVec standby_member          # entries: member
    IntVec standby_before          # entries: the task's entry before, -1: none
    int* count                     # tasks of a member
    int* process_count             # tasks of a process
    Quota active_quota
    Quota total_quota
    Heap queue                     # processes by load
    Heap* member_queue             # processes: their members by count
    char* queued  # processes: whether the queue has the present counts
    int* polled


cdef inline double _load(Streams* s, int process) noexcept nogil:
    return <double>s.process_count[process] / <double>(s.member_first[process + 1] - s.member_first[process])


cdef inline bint _less(Streams* s, bint by_count, int a, int b) noexcept nogil:
    """Returns True if `a` precedes `b` in a queue: if a member has fewer tasks, or a process has fewer tasks per member."""
    # The queue of a process has the counts of its own members, so the present count equals the queued count.
    return s.count[a] < s.count[b] if by_count else _load(s, a) < _load(s, b)


cdef void _add(Streams* s, bint by_count, Heap* heap, int x) noexcept nogil:
    cdef int k = heap.size, parent
    heap.size += 1
    while k > 0:
        parent = (k - 1) >> 1
        if not _less(s, by_count, x, heap.items[parent]):
            break
        heap.items[k] = heap.items[parent]
        k = parent
    heap.items[k] = x


cdef int _poll(Streams* s, bint by_count, Heap* heap) noexcept nogil:
    cdef int head = heap.items[0], x, k = 0, n, child
    heap.size -= 1
    n = heap.size
    if n == 0:
        return head
    x = heap.items[n]
    while k < n >> 1:
        child = 2 * k + 1
        if child + 1 < n and _less(s, by_count, heap.items[child + 1], heap.items[child]):
            child += 1
        if not _less(s, by_count, heap.items[child], x):
            break
        heap.items[k] = heap.items[child]
        k = child
    heap.items[k] = x
    return head


cdef inline int _each(int tasks, int members) noexcept nogil:
    return 0 if members == 0 else (tasks + members - 1) // members


cdef inline void _counted(Quota* quota, int count) noexcept nogil:
    """Updates the quota after a member has reached `count` tasks. A member at its quota gets no more tasks."""
    if count == quota.each:
        quota.tasks -= quota.each
        quota.members -= 1
        quota.each = _each(quota.tasks, quota.members)


cdef bint _holds(Streams* s, int process, int task) noexcept nogil:
    cdef int entry
    if s.active[task] >= 0 and s.process_of[s.active[task]] == process:
        return True
    entry = s.last_standby[task]
    while entry >= 0:
        if s.process_of[s.standby_member.at[entry]] == process:
            return True
        entry = s.standby_before.at[entry]
    return False


cdef int _placed(Streams* s, int member, int task, bint is_active) except -1 nogil:
    s.count[member] += 1
    s.process_count[s.process_of[member]] += 1
    if is_active:
        s.active[task] = member
        _counted(&s.active_quota, s.count[member])
    else:
        push(s.memory, &s.standby_member, member)
        push(s.memory, &s.standby_before, s.last_standby[task])
        s.last_standby[task] = <int>s.standby_member.size - 1
    _counted(&s.total_quota, s.count[member])
    return 0


cdef int _place_sticky(Streams* s, int member, int task, bint is_active) except -1 nogil:
    s.queued[s.process_of[member]] = 0
    return _placed(s, member, task, is_active)


cdef int _open_queues(Streams* s) except -1 nogil:
    """Creates an empty queue of members for each process."""
    cdef int* items = ints(s.memory, s.members)
    cdef int process
    s.member_queue = <Heap*>take(s.memory, s.processes * sizeof(Heap))
    for process in range(s.processes):
        s.member_queue[process].items = items + s.member_first[process]
        s.member_queue[process].size = 0
    return 0


cdef int _place_in(Streams* s, int process, int task, bint is_active) except -1 nogil:
    """Assigns a task to the member of a process with the fewest tasks."""
    cdef int i, member
    cdef Heap* heap
    if s.member_first[process + 1] - s.member_first[process] == 1:
        return _placed(s, s.member_list[s.member_first[process]], task, is_active)
    if s.member_queue == NULL:
        _open_queues(s)
    heap = &s.member_queue[process]
    if not s.queued[process]:
        heap.size = 0
        for i in range(s.member_first[process], s.member_first[process + 1]):
            _add(s, True, heap, s.member_list[i])
        s.queued[process] = 1
    member = _poll(s, True, heap)
    _placed(s, member, task, is_active)
    _add(s, True, heap, member)
    return 0


cdef void _fill_queue(Streams* s) noexcept nogil:
    cdef int process
    s.queue.size = 0
    for process in range(s.processes):
        _add(s, False, &s.queue, process)


cdef int _least_previous(Streams* s, int task, bint for_standby) noexcept nogil:
    """Returns a member that had a standby of the task; -1 if no suitable member had one.

    The first member that had a standby is the candidate. As in Kafka, a later member becomes the candidate only if the
    load of its process and its own number of tasks are both smaller than the candidate's. If `for_standby` is True,
    processes that have the task are not suitable.
    """
    cdef int i, other, first, best
    if s.standby_first[task] == s.standby_first[task + 1]:
        return -1
    first = best = s.standby[s.standby_first[task]]
    for i in range(s.standby_first[task] + 1, s.standby_first[task + 1]):
        other = s.standby[i]
        if (_load(s, s.process_of[other]) < _load(s, s.process_of[best])
                and not (for_standby and _holds(s, s.process_of[other], task)) and s.count[other] < s.count[best]):
            best = other
    # Kafka 4.3 checks the process of the first member here, even if another member was chosen.
    return -1 if for_standby and _holds(s, s.process_of[first], task) else best


cdef int _standby_to_least(Streams* s, int task) except -1 nogil:
    """Assigns a standby to the least loaded process without the task. Returns False if every process has the task."""
    cdef int process, count = 0
    cdef bint done = False
    while not done and s.queue.size:
        process = _poll(s, False, &s.queue)
        s.polled[count] = process
        count += 1
        if not _holds(s, process, task):
            _place_in(s, process, task, False)
            done = True
    while count:
        count -= 1
        _add(s, False, &s.queue, s.polled[count])
    return done


cdef int _by_number(Streams* s, int* out) except -1 nogil:
    """Orders tasks by (partition, subtopology); tasks are numbered by (subtopology, partition)."""
    cdef int* bucket
    cdef int task, top = 0
    for task in range(s.tasks):
        top = max(top, s.number[task] + 1)
    bucket = zeros(s.memory, top + 1)
    for task in range(s.tasks):
        bucket[s.number[task] + 1] += 1
    for task in range(top):
        bucket[task + 1] += bucket[task]
    for task in range(s.tasks):
        out[bucket[s.number[task]]] = task
        bucket[s.number[task]] += 1
    return 0


cdef int _assign_active(Streams* s, const int* order) except -1 nogil:
    """Assigns active tasks: to the earlier owner, else to an earlier standby, else to the least loaded process."""
    cdef int i, task, m, process
    for i in range(s.tasks):
        m = s.previous_active[order[i]]
        if m >= 0 and s.count[m] < s.active_quota.each:
            _place_sticky(s, m, order[i], True)
    for i in range(s.tasks):
        task = order[i]
        if s.active[task] < 0:
            m = _least_previous(s, task, False)
            if m >= 0 and s.count[m] < s.active_quota.each:
                _place_sticky(s, m, task, True)
    _fill_queue(s)
    for task in range(s.tasks):
        if s.active[task] < 0:
            process = _poll(s, False, &s.queue)
            _place_in(s, process, task, True)
            _add(s, False, &s.queue, process)
    return 0


cdef int _assign_standby(Streams* s, const int* order) except -1 nogil:
    """Assigns the standbys of stateful tasks, from the last task to the first, and all replicas of each task together.
    """
    cdef int* left = zeros(s.memory, s.tasks)
    cdef int task, i, m, replica
    for i in range(s.tasks - 1, -1, -1):
        task = order[i]
        if not s.stateful[task]:
            continue
        for replica in range(s.replicas):
            m = s.previous_active[task]
            if m >= 0 and not _holds(s, s.process_of[m], task) and s.count[m] < s.total_quota.each:
                _place_sticky(s, m, task, False)
                continue
            m = _least_previous(s, task, True)
            if m >= 0 and s.count[m] < s.total_quota.each:
                _place_sticky(s, m, task, False)
                continue
            left[task] = s.replicas - replica
            break
    _fill_queue(s)
    for task in range(s.tasks - 1, -1, -1):
        for replica in range(left[task]):
            if not _standby_to_least(s, task):
                break
    return 0


cdef int solve(Streams* s) except -1 nogil:
    """Assigns all tasks. Fills `active`, `last_standby`, `standby_member` and `standby_before`."""
    cdef int* order = ints(s.memory, s.tasks)
    cdef int task
    fill(s.active, s.tasks, -1)
    s.last_standby = nones(s.memory, s.tasks)
    s.count = zeros(s.memory, s.members)
    s.process_count = zeros(s.memory, s.processes)
    s.queued = flags(s.memory, s.processes, False)
    s.queue.items = ints(s.memory, s.processes)
    s.polled = ints(s.memory, s.processes)
    s.active_quota.tasks = s.total_quota.tasks = s.tasks
    for task in range(s.tasks):
        if s.stateful[task]:
            s.total_quota.tasks += s.replicas
    s.active_quota.members = s.total_quota.members = s.members
    s.active_quota.each = _each(s.active_quota.tasks, s.members)
    s.total_quota.each = _each(s.total_quota.tasks, s.members)
    _by_number(s, order)
    _assign_active(s, order)
    if s.replicas > 0:
        _assign_standby(s, order)
    return 0


cdef class StreamsMember:
    """One member of a streams group. Immutable.

    Args:
        member_id: the id that the coordinator uses for the member.
        process_id: the process in which the member runs; standbys of a task go to other processes.
        active, standby, warmup: the member's present target assignment, each as subtopology id -> partitions.
    """

    cdef readonly str member_id
    cdef readonly str process_id
    cdef readonly object active
    cdef readonly object standby
    cdef readonly object warmup

    def __init__(self, str member_id not None, str process_id not None, *, active=None, standby=None, warmup=None):
        self.member_id = member_id
        self.process_id = process_id
        self.active = active if active is not None else {}
        self.standby = standby if standby is not None else {}
        self.warmup = warmup if warmup is not None else {}

    def __eq__(self, other):
        if not isinstance(other, StreamsMember):
            return NotImplemented
        return (self.member_id, self.process_id, self.active, self.standby, self.warmup) == (
            other.member_id, other.process_id, other.active, other.standby, other.warmup)

    def __hash__(self):
        return hash((self.member_id, self.process_id))

    def __repr__(self):
        return f"StreamsMember({self.member_id!r}, {self.process_id!r})"


cdef Lowered _lower(list members, Topics topics):
    """Converts the members, by id, and all subtopologies to arrays."""
    cdef Lowered low = Lowered.__new__(Lowered)
    cdef Scratch scratch = Scratch.__new__(Scratch)
    cdef Problem p = Problem.__new__(Problem)
    cdef int i, n = <int>len(members)
    cdef PyObject** ids = <PyObject**>take(&scratch.memory, n * sizeof(PyObject*))
    for i in range(n):
        ids[i] = <PyObject*>(<StreamsMember?>members[i]).member_id
    low.problem = p
    low.given = members
    low.topics = topics
    low.identity = True
    p.members = n
    p.topics = topics.count
    p.first = copied(&p.memory, topics.first, topics.count + 1)
    p.partitions = p.first[p.topics]
    low.where = ints(&low.memory, n)
    order_of_ids(ids, n, low.where)
    take_ids(low, ids)
    low.members = <PyObject**>take(&low.memory, n * sizeof(PyObject*))
    for i in range(n):
        low.members[i] = <PyObject*>members[low.where[i]]
    low.local = ints(&low.memory, p.topics)
    for i in range(p.topics):
        low.local[i] = i
    return low


cdef inline StreamsMember _member(Lowered low, int m):
    return <StreamsMember><object>low.members[m]


cdef int _standby_rows(Streams* s, int* row_first, int* rows) except -1 nogil:
    """Writes the assigned standby tasks as rows member -> tasks, ascending."""
    cdef int* cursor
    cdef int i, m, task, entry
    memset(row_first, 0, (s.members + 1) * sizeof(int))
    for i in range(<int>s.standby_member.size):
        row_first[s.standby_member.at[i] + 1] += 1
    for m in range(s.members):
        row_first[m + 1] += row_first[m]
    cursor = copied(s.memory, row_first, s.members)
    if s.standby_member.size:
        for task in range(s.tasks):
            entry = s.last_standby[task]
            while entry >= 0:
                m = s.standby_member.at[entry]
                rows[cursor[m]] = task
                cursor[m] += 1
                entry = s.standby_before.at[entry]
    return 0


cdef int _by_task(Streams* s, const int* claim_first, const int* claims) except -1 nogil:
    """Inverts rows member -> standby tasks; a task's members come in the order of their ids."""
    cdef int* cursor
    cdef int m, i, task
    s.standby_first = zeros(s.memory, s.tasks + 1)
    for i in range(claim_first[s.members]):
        s.standby_first[claims[i] + 1] += 1
    for task in range(s.tasks):
        s.standby_first[task + 1] += s.standby_first[task]
    cursor = copied(s.memory, s.standby_first, s.tasks)
    s.standby = ints(s.memory, claim_first[s.members])
    for m in range(s.members):
        for i in range(claim_first[m], claim_first[m + 1]):
            s.standby[cursor[claims[i]]] = m
            cursor[claims[i]] += 1
    return 0


cdef int _group_processes(Streams* s, const int* process_of) except -1 nogil:
    """Numbers the processes that have members, in the order of `process_of`, and lists the members of each process."""
    cdef int* number
    cdef int* cursor
    cdef int m, i, top = 0
    for m in range(s.members):
        top = max(top, process_of[m] + 1)
    number = zeros(s.memory, top)
    for m in range(s.members):
        number[process_of[m]] = 1
    for i in range(top):
        if number[i]:
            number[i] = s.processes
            s.processes += 1
    s.process_of = ints(s.memory, s.members)
    s.member_first = zeros(s.memory, s.processes + 1)
    for m in range(s.members):
        s.process_of[m] = number[process_of[m]]
        s.member_first[s.process_of[m] + 1] += 1
    for i in range(s.processes):
        s.member_first[i + 1] += s.member_first[i]
    cursor = copied(s.memory, s.member_first, s.processes)
    s.member_list = ints(s.memory, s.members)
    for m in range(s.members):
        s.member_list[cursor[s.process_of[m]]] = m
        cursor[s.process_of[m]] += 1
    return 0


cdef int _name_tasks(Streams* s, Problem p, const char* keeps) except -1 nogil:
    """Stores the partition of every task, and whether the task has state; `keeps` is True for subtopologies with state."""
    cdef int t, task
    s.members = p.members
    s.tasks = p.partitions
    s.number = ints(s.memory, s.tasks)
    s.stateful = flags(s.memory, s.tasks, False)
    for t in range(p.topics):
        for task in range(p.first[t], p.first[t + 1]):
            s.number[task] = task - p.first[t]
            s.stateful[task] = keeps[t]
    return 0


cdef int _read_processes(Lowered low, Streams* s) except -1:
    """Numbers the processes in the order of their ids."""
    cdef dict numbers = {}  # a dict removes duplicates
    cdef PyObject** names
    cdef int* order
    cdef int* process_of
    cdef int m, i, n, members = low.problem.members
    for m in range(members):
        numbers[_member(low, m).process_id] = 0
    n = <int>len(numbers)
    names = <PyObject**>take(s.memory, n * sizeof(PyObject*))
    order = ints(s.memory, n)
    for i, name in enumerate(numbers):
        names[i] = <PyObject*>name
    order_of_ids(names, n, order)
    for i in range(n):
        numbers[<object>names[order[i]]] = i
    process_of = ints(s.memory, members)
    for m in range(members):
        process_of[m] = numbers[_member(low, m).process_id]
    return _group_processes(s, process_of)


cdef int _read(Lowered low, Streams* s, object stateful) except -1:
    """Reads the tasks and the members' previous tasks."""
    cdef Problem p = low.problem
    cdef ClaimReader rows = claim_reader(p, low.topics, low.local)
    cdef int* claim_first = zeros(s.memory, p.members + 1)
    cdef char* keeps = flags(s.memory, p.topics, False)
    cdef int m, t, i
    for t in range(p.topics):
        keeps[t] = low.topics.ordered[t] in stateful
    _name_tasks(s, p, keeps)
    _read_processes(low, s)
    s.previous_active = nones(s.memory, s.tasks)
    for m in range(p.members):
        if len(_member(low, m).active) > 0:
            p.claims.size = 0
            rows.add(_member(low, m).active, _member(low, m).member_id)
            for i in range(<int>p.claims.size):
                # If two members had the task, the later one counts, as in Kafka's map.
                s.previous_active[p.claims.at[i]] = m
    p.claims.size = 0
    for m in range(p.members):
        if len(_member(low, m).standby) > 0:
            rows.add(_member(low, m).standby, _member(low, m).member_id)
        claim_first[m + 1] = <int>p.claims.size
    return _by_task(s, claim_first, p.claims.at)


cdef int _read_arrays(Streams* s, Problem p, object process_of, object stateful, object active, object standby) except -1:
    """Checks the arrays and converts them."""
    cdef Memory* memory = s.memory
    cdef int* processes = numbers_of(memory, process_of, p.members, "process_of: one number for each member is needed")
    cdef int* keeps = numbers_of(memory, stateful, p.topics, "stateful: one truth value for each subtopology is needed")
    cdef char* kept = flags(memory, p.topics, False)
    cdef int* claim_first
    cdef int* claims
    cdef int m, t
    for m in range(p.members):
        if processes[m] < 0:
            raise ValueError(f"process_of: member {m} has the invalid process number {processes[m]}")
    if p.members == 0 and p.partitions > 0:
        raise ValueError("there are tasks but no members")
    for t in range(p.topics):
        kept[t] = keeps[t] != 0
    _name_tasks(s, p, kept)
    _group_processes(s, processes)
    s.previous_active = ints(memory, s.tasks)
    checked_owner(p, active, s.previous_active)
    if standby is None:
        claim_first = zeros(memory, p.members + 1)
        claims = ints(memory, 0)
    else:
        checked_rows(p, standby[0], standby[1], memory, &claim_first, &claims)
    return _by_task(s, claim_first, claims)


def run(Problem problem not None, process_of, stateful, standby_replicas, active=None, standby=None):
    """Runs the task assignor over arrays, which `kcore.assignors.arrays.streams_sticky` describes. Raises ValueError.
    """
    cdef Scratch scratch = Scratch.__new__(Scratch)
    cdef Streams s
    cdef int* row_first
    cdef int* rows
    memset(&s, 0, sizeof(s))
    s.memory = &scratch.memory
    s.replicas = _checked_replicas(standby_replicas, problem.partitions)
    _read_arrays(&s, problem, process_of, stateful, active, standby)
    out = new_array(s.tasks, &s.active)
    with nogil:
        if s.members:
            solve(&s)
        row_first = ints(&scratch.memory, s.members + 1)
        rows = ints(&scratch.memory, s.standby_member.size)
        _standby_rows(&s, row_first, rows)
    return out, as_array(row_first, s.members + 1), as_array(rows, s.standby_member.size)


cdef int _checked_replicas(object standby_replicas, int tasks) except -1:
    if not 0 <= standby_replicas <= MOST_PARTITIONS // max(tasks, 1) - 1:
        raise ValueError(f"num_standby_replicas: {standby_replicas} replicas for each of {tasks} tasks are too many")
    return standby_replicas


def assign(members, topics, stateful, standby_replicas):
    """Assigns tasks. Returns the GroupAssignments (active, standby, warmup), of which the last is empty.

    Args:
        members: StreamsMember values.
        topics: Topics of the subtopologies: id -> number of tasks.
        stateful: ids of the subtopologies with state.
        standby_replicas: `num.standby.replicas`.
    """
    cdef list given = list(members.values() if isinstance(members, Mapping) else members)
    cdef Lowered low = _lower(given, topics)
    cdef Scratch scratch = Scratch.__new__(Scratch)
    cdef GroupAssignment active = low.exclusive(), warmup = low.shared(0), standby
    cdef Streams s
    memset(&s, 0, sizeof(s))
    s.memory = &scratch.memory
    s.replicas = _checked_replicas(standby_replicas, low.problem.partitions)
    _read(low, &s, frozenset(stateful))
    s.active = active.owner
    if s.members == 0:
        fill(s.active, s.tasks, -1)
    else:
        with nogil:
            solve(&s)
    standby = low.shared(s.standby_member.size)
    _standby_rows(&s, standby.row_first, standby.rows)
    memset(warmup.row_first, 0, (s.members + 1) * sizeof(int))
    return active, standby, warmup
