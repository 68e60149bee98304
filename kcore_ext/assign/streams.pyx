# distutils: language = c++
"""The sticky task assignor of streams groups (KIP-1071): active tasks first, then standbys."""

from collections.abc import Mapping

from cpython.ref cimport PyObject
from libcpp.vector cimport vector

from kcore_ext.assign.ids cimport order_of_ids
from kcore_ext.assign.lower cimport Lowered, Rows, take_ids
from kcore_ext.assign.model cimport Topics
from kcore_ext.assign.problem cimport Problem


cdef extern from * nogil:
    """
    #include <algorithm>
    #include <vector>
    // A binary heap with the exact layout rules of java.util.PriorityQueue, which decide among equal keys.
    template <class Less> struct KcoreHeap {
        std::vector<int> items;
        Less less;
        void add(int x) {
            items.push_back(x);
            size_t k = items.size() - 1;
            while (k > 0) {
                size_t parent = (k - 1) >> 1;
                if (!less(x, items[parent])) break;
                items[k] = items[parent];
                k = parent;
            }
            items[k] = x;
        }
        int poll() {
            int head = items[0], x = items.back();
            items.pop_back();
            size_t n = items.size(), k = 0;
            if (n == 0) return head;
            while (k < n >> 1) {
                size_t child = 2 * k + 1;
                if (child + 1 < n && less(items[child + 1], items[child])) child++;
                if (!less(items[child], x)) break;
                items[k] = items[child];
                k = child;
            }
            items[k] = x;
            return head;
        }
        bool empty() const { return items.empty(); }
    };

    struct KcoreStreams {
        int members = 0, processes = 0, tasks = 0, replicas = 0;
        std::vector<int> process_of;                      // members
        std::vector<int> member_first, member_list;       // processes -> members in id order
        std::vector<int> number;                          // tasks: partition
        std::vector<char> stateful;                       // tasks
        std::vector<int> previous_active;                 // tasks: member, -1
        std::vector<int> standby_first, standby;          // tasks -> members that had it as a standby
        std::vector<int> active;                          // result: tasks -> member
        std::vector<std::vector<int>> standbys;           // result: tasks -> members
        std::vector<int> count, process_count;            // tasks of a member, of a process
        // Quotas: tasks left, members left, tasks a member.
        int active_left = 0, active_members = 0, active_quota = 0;
        int total_left = 0, total_members = 0, total_quota = 0;

        struct Entry { int member, count; };
        struct ByLoad {
            const KcoreStreams *s;
            bool operator()(int a, int b) const {
                return s->load(a) < s->load(b);
            }
        };
        struct ByCount {
            const KcoreStreams *s;
            // A process's queue holds its own members' counts, so the live count is the queued one.
            bool operator()(int a, int b) const { return s->count[a] < s->count[b]; }
        };
        KcoreHeap<ByLoad> queue{{}, ByLoad{this}};
        std::vector<KcoreHeap<ByCount>> member_queue;
        std::vector<char> queued;

        KcoreStreams() = default;
        KcoreStreams(const KcoreStreams &) = delete;

        static int quota(int tasks, int members) { return members == 0 ? 0 : (tasks + members - 1) / members; }
        int size_of(int process) const { return member_first[process + 1] - member_first[process]; }
        double load(int process) const { return (double)process_count[process] / (double)size_of(process); }
        bool holds_task(int process, int task) const {
            if (active[task] >= 0 && process_of[active[task]] == process) return true;
            if (replicas)
                for (int m : standbys[task]) if (process_of[m] == process) return true;
            return false;
        }

        void placed(int member, int task, bool is_active) {
            int process = process_of[member];
            count[member]++;
            process_count[process]++;
            if (is_active) active[task] = member; else standbys[task].push_back(member);
            if (is_active && count[member] == active_quota) {
                active_left -= active_quota;
                active_quota = quota(active_left, --active_members);
            }
            if (count[member] == total_quota) {
                total_left -= total_quota;
                total_quota = quota(total_left, --total_members);
            }
        }
        void place_sticky(int member, int task, bool is_active) {
            queued[process_of[member]] = 0;
            placed(member, task, is_active);
        }
        void place_in(int process, int task, bool is_active) {
            if (size_of(process) == 1) { placed(member_list[member_first[process]], task, is_active); return; }
            if (member_queue.empty()) member_queue.assign(processes, KcoreHeap<ByCount>{{}, ByCount{this}});
            auto &q = member_queue[process];
            if (!queued[process]) {
                q.items.clear();
                for (int i = member_first[process]; i < member_first[process + 1]; i++) q.add(member_list[i]);
                queued[process] = 1;
            }
            int member = q.poll();
            placed(member, task, is_active);
            q.add(member);
        }
        void fill_queue() {
            queue.items.clear();
            for (int p = 0; p < processes; p++) queue.add(p);
        }
        // Among members that had the task as a standby: process load and own count both smaller replace the first.
        int least_previous(int task, bool for_standby) const {
            int from = standby_first[task], to = standby_first[task + 1];
            if (from == to) return -1;
            int first = standby[from], best = first;
            for (int i = from + 1; i < to; i++) {
                int other = standby[i];
                if (load(process_of[other]) < load(process_of[best])
                    && !(for_standby && holds_task(process_of[other], task)) && count[other] < count[best]) best = other;
            }
            // Kafka 4.3 looks at the first one's process here, whichever was chosen.
            return for_standby && holds_task(process_of[first], task) ? -1 : best;
        }
        bool standby_to_least(int task) {
            std::vector<int> polled;
            bool done = false;
            while (!done && !queue.empty()) {
                int process = queue.poll();
                polled.push_back(process);
                if (!holds_task(process, task)) { place_in(process, task, false); done = true; }
            }
            while (!polled.empty()) { queue.add(polled.back()); polled.pop_back(); }
            return done;
        }
    };
    """
    cppclass Streams "KcoreStreams":
        int members
        int processes
        int tasks
        int replicas
        vector[int] process_of
        vector[int] member_first
        vector[int] member_list
        vector[int] number
        vector[char] stateful
        vector[int] previous_active
        vector[int] standby_first
        vector[int] standby
        vector[int] active
        vector[vector[int]] standbys
        vector[int] count
        int active_left
        int active_members
        int active_quota
        int total_left
        int total_members
        int total_quota
        bint holds_task(int process, int task)
        void place_sticky(int member, int task, bint is_active)
        int least_previous(int task, bint for_standby)
        bint standby_to_least(int task)
        void fill_queue()
    int quota_of "KcoreStreams::quota"(int tasks, int members)


cdef extern from * nogil:
    """
    static void kcore_prepare(KcoreStreams &s) {
        s.active.assign(s.tasks, -1);
        if (s.replicas) s.standbys.assign(s.tasks, {});
        s.count.assign(s.members, 0);
        s.process_count.assign(s.processes, 0);
        s.queued.assign(s.processes, 0);
    }
    static void kcore_place_least(KcoreStreams &s, int task) {
        int process = s.queue.poll();
        s.place_in(process, task, true);
        s.queue.add(process);
    }
    """
    void prepare "kcore_prepare"(Streams& s)
    void place_least "kcore_place_least"(Streams& s, int task)


cdef int _by_number(Streams& s, vector[int]& out) noexcept nogil:
    """Tasks by (partition, subtopology); tasks are numbered by (subtopology, partition)."""
    cdef vector[int] bucket
    cdef int task, top = 0
    for task in range(s.tasks):
        top = max(top, <int>s.number[task] + 1)
    bucket.assign(top + 1, 0)
    for task in range(s.tasks):
        bucket[s.number[task] + 1] += 1
    for task in range(top):
        bucket[task + 1] += bucket[task]
    out.resize(s.tasks)
    for task in range(s.tasks):
        out[bucket[s.number[task]]] = task
        bucket[s.number[task]] += 1
    return 0


cdef int _assign_active(Streams& s, vector[int]& order) noexcept nogil:
    """To the earlier owner, else to an earlier standby, else to the least loaded process."""
    cdef int i, task, m
    for task in order:
        m = s.previous_active[task]
        if m >= 0 and s.count[m] < s.active_quota:
            s.place_sticky(m, task, True)
    for task in order:
        if s.active[task] < 0:
            m = s.least_previous(task, False)
            if m >= 0 and s.count[m] < s.active_quota:
                s.place_sticky(m, task, True)
    s.fill_queue()
    for task in range(s.tasks):
        if s.active[task] < 0:
            place_least(s, task)
    return 0


cdef int _assign_standby(Streams& s, vector[int]& order) noexcept nogil:
    """Stateful tasks from the last to the first, all replicas of one before the next."""
    cdef vector[int] left
    cdef int task, i, m, replica
    left.assign(s.tasks, 0)
    for i in range(s.tasks - 1, -1, -1):
        task = order[i]
        if not s.stateful[task]:
            continue
        for replica in range(s.replicas):
            m = s.previous_active[task]
            if m >= 0 and not s.holds_task(s.process_of[m], task) and s.count[m] < s.total_quota:
                s.place_sticky(m, task, False)
                continue
            m = s.least_previous(task, True)
            if m >= 0 and s.count[m] < s.total_quota:
                s.place_sticky(m, task, False)
                continue
            left[task] = s.replicas - replica
            break
    s.fill_queue()
    for task in range(s.tasks - 1, -1, -1):
        for replica in range(left[task]):
            if not s.standby_to_least(task):
                break
    return 0


cdef int solve(Streams& s) noexcept nogil:
    """Fills `active` and `standbys`."""
    cdef vector[int] order
    cdef int task
    prepare(s)
    s.active_left = s.tasks
    s.total_left = s.tasks
    for task in range(s.tasks):
        if s.stateful[task]:
            s.total_left += s.replicas
    s.active_members = s.total_members = s.members
    s.active_quota = quota_of(s.active_left, s.active_members)
    s.total_quota = quota_of(s.total_left, s.total_members)
    _by_number(s, order)
    _assign_active(s, order)
    if s.replicas > 0:
        _assign_standby(s, order)
    return 0


cdef class StreamsMember:
    """One member of a streams group. Immutable.

    Args:
        member_id: the coordinator's id of the member.
        process_id: the process it runs in; standbys of a task go to other processes.
        active, standby, warmup: its target assignment so far, subtopology id -> partitions.
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
    """Members by id and all subtopologies."""
    cdef Lowered low = Lowered.__new__(Lowered)
    cdef vector[int] where
    cdef vector[PyObject*] ids
    cdef int i, t
    for member in members:
        ids.push_back(<PyObject*>(<StreamsMember?>member).member_id)
    order_of_ids(ids, where)
    low.given = members
    take_ids(low, ids, where)
    for i in where:
        low.members.push_back(<PyObject*>members[i])
    low.topics = topics
    low.identity = True
    low.problem = Problem.__new__(Problem)
    low.problem.members = <int>ids.size()
    low.problem.topics = <int>len(topics.ordered)
    low.problem.first = topics.first
    low.problem.partitions = topics.first.back()
    for t in range(low.problem.topics):
        low.local.push_back(t)
    return low


cdef int _read(Lowered low, Streams& s, object stateful) except -1:
    """Processes, tasks and what members had."""
    cdef Problem p = low.problem
    cdef Rows rows = Rows(low)
    cdef StreamsMember member
    cdef vector[int] cursor
    cdef vector[PyObject*] names
    cdef dict numbers = {}
    cdef int m, t, i, task
    cdef bint keeps
    s.members = p.members
    # Processes in the order of their ids; a dict keeps the different ones.
    for m in range(p.members):
        numbers[(<StreamsMember><object>low.members[m]).process_id] = 0
    for name in numbers:
        names.push_back(<PyObject*>name)
    order_of_ids(names, cursor)
    s.processes = <int>names.size()
    for i in range(s.processes):
        numbers[<object>names[cursor[i]]] = i
    s.process_of.resize(p.members)
    s.member_first.assign(s.processes + 1, 0)
    for m in range(p.members):
        s.process_of[m] = numbers[(<StreamsMember><object>low.members[m]).process_id]
        s.member_first[s.process_of[m] + 1] += 1
    for i in range(s.processes):
        s.member_first[i + 1] += s.member_first[i]
    cursor = s.member_first
    s.member_list.resize(p.members)
    for m in range(p.members):
        s.member_list[cursor[s.process_of[m]]] = m
        cursor[s.process_of[m]] += 1
    s.tasks = p.partitions
    for t in range(p.topics):
        keeps = low.topics.ordered[t] in stateful
        for task in range(p.first[t], p.first[t + 1]):
            s.number.push_back(task - p.first[t])
            s.stateful.push_back(keeps)
    s.previous_active.assign(s.tasks, -1)
    for m in range(p.members):
        member = <StreamsMember><object>low.members[m]
        if len(member.active) > 0:
            p.claims.clear()
            rows.add(member.active)
            for i in range(<int>p.claims.size()):
                # Of two members that had it the later one counts, as with Kafka's map.
                s.previous_active[p.claims[i]] = m
    s.standby_first.assign(s.tasks + 1, 0)
    p.claims.clear()
    p.claim_first.assign(1, 0)
    for m in range(p.members):
        member = <StreamsMember><object>low.members[m]
        if len(member.standby) > 0:
            rows.add(member.standby)
        p.claim_first.push_back(<int>p.claims.size())
    for i in range(<int>p.claims.size()):
        s.standby_first[p.claims[i] + 1] += 1
    for task in range(s.tasks):
        s.standby_first[task + 1] += s.standby_first[task]
    cursor = s.standby_first
    s.standby.resize(p.claims.size())
    for m in range(p.members):
        for i in range(p.claim_first[m], p.claim_first[m + 1]):
            s.standby[cursor[p.claims[i]]] = m
            cursor[p.claims[i]] += 1
    return 0


def assign(members, topics, stateful, int standby_replicas):
    """Assigns tasks; returns (active, standby, warmup) as three GroupAssignments; the last is empty.

    Args:
        members: StreamsMember values.
        topics: Topics of the subtopologies: id -> number of tasks.
        stateful: ids of the subtopologies with state.
        standby_replicas: `num.standby.replicas`.
    """
    cdef list given = list(members.values() if isinstance(members, Mapping) else members)
    cdef Lowered low = _lower(given, topics)
    cdef Streams s
    cdef vector[int] first, rows, cursor, no_first, no_rows
    cdef int task, m
    s.replicas = standby_replicas
    _read(low, s, frozenset(stateful))
    if s.members == 0:
        s.active.assign(s.tasks, -1)
    else:
        with nogil:
            solve(s)
    first.assign(s.members + 1, 0)
    for task in range(<int>s.standbys.size()):
        for m in s.standbys[task]:
            first[m + 1] += 1
    for m in range(s.members):
        first[m + 1] += first[m]
    rows.resize(first[s.members])
    cursor = first
    for task in range(<int>s.standbys.size()):
        for m in s.standbys[task]:
            rows[cursor[m]] = task
            cursor[m] += 1
    no_first.assign(s.members + 1, 0)
    return low.exclusive(s.active), low.shared(first, rows), low.shared(no_first, no_rows)
