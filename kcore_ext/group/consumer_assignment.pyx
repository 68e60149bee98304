"""Compiled loops over the partitions of a member of a consumer group: its next step, and the owners of partitions.

A pattern can match 30,000 topics for one member. In Python, the step of a member towards such a target took 160 ms.
"""

cimport cython
from cpython.object cimport PyObject

from kcore_ext.assign.model cimport Topics
from kcore_ext.codec.fields cimport FieldLayout

cdef enum:
    TOPIC_ID, PARTITIONS    # the fields of a topic in a response

cdef dict _no_partitions = {}  # of a topic without owners; never changed


@cython.final
cdef class SubscribedTopics:
    """Documented in consumer_assignment.pyi."""

    cdef object by_id
    cdef object names
    cdef Topics known   # None: no topics are known

    def __cinit__(self, by_id, frozenset names not None, Topics known=None):
        self.by_id = by_id
        self.names = names
        self.known = known

    def __call__(self, topic_id):
        return self.has(topic_id)

    cdef bint has(self, object topic_id) except -1:
        if self.known is not None and topic_id in <dict>self.known.index:
            return True  # one look-up: the objects of 30,000 topics are not in the processor's cache
        topic = self.by_id(topic_id)
        return topic is not None and topic.name in self.names


@cython.final
cdef class SharedEpochs:
    """The epochs of the owners of a topic's partitions. Topics with equal epochs share one object. Immutable."""

    cdef dict of_topic

    def __cinit__(self, dict of_topic):
        self.of_topic = of_topic


@cython.final
cdef class PartitionOwners:
    """Documented in consumer_assignment.pyi."""

    cdef dict epochs    # topic id -> partition -> member epoch of its owner; or a SharedEpochs

    def __cinit__(self):
        self.epochs = {}

    def of(self, topic_id):
        return self.owners_of(topic_id)

    def replace(self, before, after):
        if before is not None and after is not None and not before.revoking and not after.revoking:
            self.replace_assigned(before.assigned, before.member_epoch, after.assigned, after.member_epoch)
            return
        if before is not None:
            self.remove(before.assigned, before.member_epoch)
            self.remove(before.revoking, before.member_epoch)
        if after is not None:
            self.add(after.assigned, after.member_epoch)
            self.add(after.revoking, after.member_epoch)

    cdef dict owners_of(self, object topic_id):
        entry = self.epochs.get(topic_id)
        if entry is None:
            return _no_partitions
        return (<SharedEpochs>entry).of_topic if type(entry) is SharedEpochs else <dict>entry

    cdef dict own_entry(self, object topic_id):
        """Returns the entry of a topic, which the caller may change; None if the topic has no owners."""
        entry = self.epochs.get(topic_id)
        if type(entry) is SharedEpochs:
            entry = self.epochs[topic_id] = (<SharedEpochs>entry).of_topic.copy()
        return entry

    cdef int replace_assigned(self, dict old, object old_epoch, dict new, object new_epoch) except -1:
        """Replaces a member's partitions. Topics whose partitions do not change only get the member's new epoch."""
        cdef dict of_topic
        cdef dict removed = {}
        cdef dict added = {}
        cdef SharedEpochs shared
        last_partitions = last_entry = last_shared = None
        for topic_id, partitions in old.items():
            if new.get(topic_id) is not partitions:
                removed[topic_id] = partitions
        if removed:
            self.remove(removed, old_epoch)
        for topic_id, partitions in new.items():
            if old.get(topic_id) is not partitions:
                added[topic_id] = partitions
                continue
            entry = self.epochs.get(topic_id)
            if type(entry) is SharedEpochs:
                if entry is last_entry and partitions is last_partitions:
                    self.epochs[topic_id] = last_shared
                    continue
                shared = SharedEpochs(dict.fromkeys(partitions, new_epoch))
                if self.holds_all((<SharedEpochs>entry).of_topic, partitions, old_epoch):
                    self.epochs[topic_id] = shared
                    last_partitions, last_entry, last_shared = partitions, entry, shared
                    continue
            of_topic = self.own_entry(topic_id)
            if of_topic is None:
                added[topic_id] = partitions
                continue
            for partition in <dict?>partitions:
                present = of_topic.get(partition)
                if present is not None and present != old_epoch and present >= new_epoch:
                    raise_owned(topic_id, partition, present, new_epoch)
                of_topic[partition] = new_epoch
        if added:
            self.add(added, new_epoch)
        return 0

    cdef bint holds_all(self, dict of_topic, dict partitions, object member_epoch) except -1:
        """Returns True if an entry has exactly these partitions, and the member owns all of them in that epoch."""
        if len(of_topic) != len(partitions):
            return False
        for partition in partitions:
            if of_topic.get(partition) != member_epoch:
                return False
        return True

    cdef int remove(self, dict owned, object member_epoch) except -1:
        cdef dict of_topic
        last_partitions = last_entry = None  # the last deleted entry: topics that share it need no second comparison
        for topic_id, partitions in owned.items():
            entry = self.epochs.get(topic_id)
            if type(entry) is SharedEpochs:
                if (entry is last_entry and partitions is last_partitions) or self.holds_all(
                    (<SharedEpochs>entry).of_topic, partitions, member_epoch
                ):
                    last_partitions, last_entry = partitions, entry
                    del self.epochs[topic_id]
                    continue
            of_topic = self.own_entry(topic_id)
            if of_topic is None:
                continue
            for partition in <dict?>partitions:
                # Another epoch belongs to a later owner; the records in between were compacted away.
                if of_topic.get(partition) == member_epoch:
                    del of_topic[partition]
            if not of_topic:
                del self.epochs[topic_id]
        return 0

    cdef int add(self, dict owned, object member_epoch) except -1:
        cdef dict of_topic
        cdef SharedEpochs shared = None
        last_partitions = None
        for topic_id, partitions in owned.items():
            if topic_id not in self.epochs:  # the topic has no owners, so no partition is checked
                if not partitions:
                    continue
                if partitions is not last_partitions:
                    last_partitions, shared = partitions, None
                    self.epochs[topic_id] = dict.fromkeys(partitions, member_epoch)
                    continue
                if shared is None:
                    shared = SharedEpochs(dict.fromkeys(partitions, member_epoch))
                self.epochs[topic_id] = shared
                continue
            of_topic = self.own_entry(topic_id)
            for partition in <dict?>partitions:
                present = of_topic.get(partition)
                if present is not None and present >= member_epoch:
                    raise_owned(topic_id, partition, present, member_epoch)
                of_topic[partition] = member_epoch
        return 0


cdef int raise_owned(object topic_id, object partition, object present, object member_epoch) except -1:
    raise ValueError(
        f"partition {partition} of {topic_id.hex()} has an owner in epoch {present} "
        f"and cannot be assigned in epoch {member_epoch}"
    )


def next_partitions(
    dict assigned not None,
    dict revoking_before not None,
    dict target not None,
    epoch,
    PartitionOwners owners not None,
    subscribed,
):
    cdef dict kept = {}
    cdef dict revoking = {}
    cdef dict granted = {}
    cdef dict partitions, stay, leave, has, taken, own, free
    cdef SubscribedTopics known = subscribed if type(subscribed) is SubscribedTopics else None
    cdef bint waits = False, all_stay
    last_target = last_granted = None  # topics with equal partitions share their dictionary
    for topic_id, owned in assigned.items():
        partitions = owned
        target_partitions = target.get(topic_id)
        if target_partitions is None or not (known.has(topic_id) if known is not None else subscribed(topic_id)):
            revoking[topic_id] = partitions
            continue
        if len(target_partitions) == len(partitions):
            all_stay = True
            for partition in target_partitions:
                if partition not in partitions:
                    all_stay = False
                    break
            if all_stay:
                kept[topic_id] = partitions  # most heartbeats change few topics: keep the same object
                continue
        target_set = set(target_partitions)
        stay, leave = {}, {}
        for partition, since in partitions.items():
            if partition in target_set:
                stay[partition] = since
            else:
                leave[partition] = since
        if stay:
            kept[topic_id] = stay
        if leave:
            revoking[topic_id] = leave
    for topic_id, target_partitions in target.items():
        has = kept.get(topic_id, _no_partitions)
        if len(has) == len(target_partitions):
            continue
        if not (known.has(topic_id) if known is not None else subscribed(topic_id)):
            continue
        taken, own = owners.owners_of(topic_id), revoking_before.get(topic_id, _no_partitions)
        if not taken and not has:
            if target_partitions is not last_target:
                last_target, last_granted = target_partitions, dict.fromkeys(target_partitions, epoch)
            granted[topic_id] = last_granted
            continue
        free = {}
        for partition in target_partitions:
            if partition in has:
                continue
            if partition in taken and partition not in own:
                waits = True
            else:
                free[partition] = epoch
        if free:
            granted[topic_id] = free
    return kept, revoking, granted, waits


def with_granted(dict kept not None, dict granted not None):
    if not kept:
        return granted
    for topic_id, partitions in granted.items():
        has = kept.get(topic_id)
        kept[topic_id] = partitions if has is None else {**has, **partitions}
    return kept


def topics_of(dict owned not None, FieldLayout layout not None):
    cdef PyObject* values[2]
    cdef list topics = []
    cdef list listed = None
    last_partitions = None  # topics with equal partitions share the list
    for topic_id, partitions in owned.items():
        if partitions is not last_partitions:
            last_partitions, listed = partitions, list(partitions)
        values[TOPIC_ID], values[PARTITIONS] = <PyObject*>topic_id, <PyObject*>listed
        topics.append(layout.make(values))
    return topics
