"""The reference implementation of the delivery state of a share partition: a dictionary of offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED, UNFETCHED, NO_DATA = 0, 1, 2, 4, 5, 6
COMPLETE = {ACKNOWLEDGED, ARCHIVED, NO_DATA}
ACCEPT, RELEASE, RENEW = 1, 2, 4

Bounds = tuple[int, int]


class Acknowledgement(NamedTuple):
    """A batch of acknowledgements, with the same fields as in the messages."""

    first_offset: int
    last_offset: int
    acknowledge_types: tuple[int, ...]


class Offset:
    """The delivery state of one offset.

    Attributes:
        state: the state. While a record of its change is being written, this is already the new state.
        count: the number of deliveries.
        origin: the range in which the offset was first acquired.
        member: the member that has acquired the offset.
        deadline_ms: the time at which the acquisition lock ends.
        expired: True if the lock has ended while a change was being written.
        changing: True while a change from the state ACQUIRED is being written.
    """

    def __init__(self, state: int, count: int, origin: Bounds) -> None:
        self.state = state
        self.count = count
        self.origin = origin
        self.member: str | None = None
        self.deadline_ms = -1
        self.expired = False
        self.changing = False

    @property
    def takeable(self) -> bool:
        return self.state in (AVAILABLE, UNFETCHED) and not self.changing

    def unlock(self) -> None:
        self.member, self.deadline_ms, self.expired = None, -1, False


class Model:
    """A share partition."""

    def __init__(self, start_offset: int, batches: Iterable[tuple[int, int, int, int]]) -> None:
        self.offsets: dict[int, Offset] = {}
        self.start = self.end = start_offset
        for first, last, state, count in batches:
            for offset in range(self.end, first):
                self.offsets[offset] = Offset(UNFETCHED, 0, (self.end, first - 1))
            for offset in range(first, last + 1):
                self.offsets[offset] = Offset(state, count, (first, last))
            self.end = last + 1
        self.advance()

    # ---- state

    @property
    def complete_count(self) -> int:
        return sum(one.state in (ACKNOWLEDGED, ARCHIVED) for one in self.offsets.values())

    def next_fetch_offset(self) -> int:
        return next((offset for offset in sorted(self.offsets) if self.offsets[offset].takeable), self.end)

    def snapshot(self) -> dict[int, tuple[int, int, bool, str | None]]:
        return {
            offset: (one.state, 0 if one.state in COMPLETE else one.count, one.changing, one.member)
            for offset, one in self.offsets.items()
        }

    def advance(self) -> bool:
        before = self.start
        while self.start < self.end:
            one = self.offsets[self.start]
            if one.changing or one.state not in COMPLETE:
                break
            del self.offsets[self.start]
            self.start += 1
        return self.start > before

    def move_log_start(self, offset: int) -> None:
        if offset > self.start:
            for each in [each for each in self.offsets if each < offset]:
                del self.offsets[each]
            self.start, self.end = offset, max(self.end, offset)

    # ---- acquiring

    def acquire(
        self,
        member: str,
        log: Sequence[Bounds],
        deadline_ms: int,
        *,
        max_records: int,
        batch_size: int,
        record_limit: bool,
        max_locks: int,
        max_deliveries: int,
    ) -> list[tuple[int, int, int]]:
        """Acquires records of log batches. Returns the ranges with their delivery counts."""
        fetch_offset = self.next_fetch_offset()
        base, last = log[0][0], log[-1][1]
        most = min(max_records, max_locks - (self.end - self.start))
        if last < self.start:
            return []
        if most <= 0:
            if fetch_offset >= self.end:
                return []
            most, last = min(max_records, self.end - fetch_offset), min(last, self.end - 1)
        for offset in range(fetch_offset, min(base, self.end)):
            one = self.offsets[offset]
            if one.takeable:
                one.state = ARCHIVED if one.state == AVAILABLE else NO_DATA
        taking = _Taking(self, member, log, deadline_ms, most, batch_size, record_limit, max_deliveries)
        offset = max(base, self.start)
        first = offset
        while offset < self.end and offset <= last and taking.count < taking.most:
            one = self.offsets[offset]
            if not one.takeable:
                offset += 1
            elif one.state == UNFETCHED:
                gap_end = offset
                while gap_end < last and gap_end + 1 in self.offsets and self._joins_gap(gap_end + 1):
                    gap_end += 1
                taking.take_new(offset, gap_end)
                offset = gap_end + 1
            else:
                group = [
                    each for each in range(offset, min(self.end, last + 1)) if self.offsets[each].origin == one.origin
                ]
                taking.take_group(group)
                offset = group[-1] + 1
        if taking.count < taking.most and self.end <= last:
            begin = max(self.end, first)
            if self.offsets:
                for each in range(self.end, begin):
                    self.offsets[each] = Offset(NO_DATA, 0, (self.end, begin - 1))
            else:
                self.start = begin
            taking.take_new(begin, last)
        return taking.ranges()

    def _joins_gap(self, offset: int) -> bool:
        one = self.offsets[offset]
        return one.state == UNFETCHED and not one.changing

    # ---- changes

    def acknowledge(
        self,
        member: str,
        batches: Iterable[Acknowledgement],
        deadline_ms: int,
        *,
        max_deliveries: int,
        allow_renew: bool,
    ) -> int | list[int]:
        """Begins an acknowledgement. Returns the offsets that change, or an error code if the acknowledgement is
        refused and changes no offset.
        """
        changed: list[int] = []
        renewed: list[int] = []
        error = 0
        for batch in batches:
            if batch.last_offset < self.start:
                continue
            if not self.offsets:
                error = 121
            elif batch.first_offset >= self.end or batch.last_offset >= self.end:
                error = 42
            else:
                for offset in range(max(batch.first_offset, self.start), batch.last_offset + 1):
                    types = batch.acknowledge_types
                    kind = types[0] if len(types) == 1 else types[offset - batch.first_offset]
                    one = self.offsets[offset]
                    if one.state in (NO_DATA, UNFETCHED):
                        continue
                    if one.state != ACQUIRED or one.member != member or (kind == RENEW and not allow_renew):
                        error = 121
                        break
                    if kind == RENEW:
                        renewed.append(offset)
                        continue
                    one.changing = True
                    changed.append(offset)
                    if kind == ACCEPT:
                        one.state = ACKNOWLEDGED
                    else:
                        one.state = AVAILABLE if kind == RELEASE and one.count < max_deliveries else ARCHIVED
            if error:
                self._undo(changed, max_deliveries)
                return error
        for offset in renewed:
            if not self.offsets[offset].changing:
                self.offsets[offset].deadline_ms = deadline_ms
        return changed

    def release(self, member: str, max_deliveries: int) -> list[int]:
        changed = [
            offset for offset, one in sorted(self.offsets.items()) if one.state == ACQUIRED and one.member == member
        ]
        for offset in changed:
            one = self.offsets[offset]
            one.changing = True
            one.state = AVAILABLE if one.count < max_deliveries else ARCHIVED
        return changed

    def finish(self, changed: Sequence[int], written: bool, max_deliveries: int) -> bool:
        """Ends an acknowledgement after its write. If the write failed, undoes the acknowledgement. Returns True if the
        start offset has moved.
        """
        if not written:
            self._undo(changed, max_deliveries)
            return False
        for offset in changed:
            if offset in self.offsets:
                self.offsets[offset].changing = False
                self.offsets[offset].unlock()
        return self.advance()

    def _undo(self, changed: Sequence[int], max_deliveries: int) -> None:
        for offset in changed:
            one = self.offsets.get(offset)
            if one is not None:
                one.changing, one.state = False, ACQUIRED
                if one.expired:
                    self._free(one, max_deliveries)

    def _free(self, one: Offset, max_deliveries: int) -> None:
        one.state = AVAILABLE if one.count < max_deliveries else ARCHIVED
        one.unlock()

    def expire(self, now_ms: int, max_deliveries: int) -> dict[int, tuple[int, int]]:
        """Releases the offsets whose acquisition lock has ended. Returns (state, delivery count) of each released
        offset.
        """
        freed = {}
        for offset, one in sorted(self.offsets.items()):
            if one.member is None or one.deadline_ms > now_ms:
                continue
            if one.changing:
                one.expired = True
            else:
                self._free(one, max_deliveries)
                freed[offset] = (one.state, one.count)
        return freed


class _Taking:
    """The state of one acquisition."""

    def __init__(
        self,
        model: Model,
        member: str,
        log: Sequence[Bounds],
        deadline_ms: int,
        most: int,
        batch_size: int,
        record_limit: bool,
        max_deliveries: int,
    ) -> None:
        self.model = model
        self.member = member
        self.log = log
        self.deadline_ms = deadline_ms
        self.most = most
        self.batch_size = batch_size
        self.record_limit = record_limit
        self.max_deliveries = max_deliveries
        self.throttle = max(2, -(-max_deliveries // 2))
        self.taken: list[int] = []

    @property
    def count(self) -> int:
        return len(self.taken)

    def take(self, offset: int) -> None:
        one = self.model.offsets[offset]
        one.state, one.count, one.member, one.deadline_ms = ACQUIRED, one.count + 1, self.member, self.deadline_ms
        one.expired = False
        self.taken.append(offset)

    def take_group(self, group: list[int]) -> None:
        """Acquires available offsets of one log batch.

        If some of them were delivered often, acquires only a few. An offset before its last delivery is acquired alone.
        """
        offsets = self.model.offsets
        free = [offset for offset in group if offsets[offset].state == AVAILABLE and offsets[offset].takeable]
        throttled = max(offsets[offset].count for offset in free) >= self.throttle
        if throttled and self.taken:
            self.most = 0
            return
        remaining, taken, piece = self.most - self.count, 0, -1
        for offset in free:
            one = offsets[offset]
            alone = self.max_deliveries > 2 and one.count == self.max_deliveries - 1
            if alone and taken:
                break
            if one.count >= self.throttle and piece < 0:
                size = one.origin[1] - one.origin[0] + 1
                piece = max(1, size >> (one.count - self.throttle + 1))
            if piece >= 0 and taken >= piece:
                break
            self.take(offset)
            taken += 1
            if alone or (self.record_limit and taken == remaining) or taken == piece:
                break
        if throttled and taken:
            self.most = 0

    def take_new(self, first: int, last: int) -> None:
        """Takes offsets that were never delivered. Takes whole log batches, unless the client has set a strict record
        limit.
        """
        model = self.model
        remaining = self.most - self.count
        limit = last
        if last - first + 1 > remaining:
            wanted = first + remaining - 1
            limit = min(last, next((end for base, end in self.log if base <= wanted <= end), wanted))
        origins: list[Bounds] = []
        begin = first
        if not self.record_limit and limit - first + 1 > self.batch_size:
            for base, _ in self.log:
                if begin < base <= limit and base - begin >= self.batch_size:
                    origins.append((begin, base - 1))
                    begin = base
        origins.append((begin, limit))
        for origin in origins:
            for offset in range(origin[0], origin[1] + 1):
                model.offsets[offset] = Offset(AVAILABLE, 0, origin)
        model.end = max(model.end, limit + 1)
        model.offsets = dict(sorted(model.offsets.items()))
        for offset in range(first, min(limit, first + remaining - 1 if self.record_limit else limit) + 1):
            self.take(offset)

    def ranges(self) -> list[tuple[int, int, int]]:
        """Returns the acquired ranges. Adjacent offsets form one range if they have the same delivery count and were
        first acquired in the same range.
        """
        found: list[tuple[int, int, int]] = []
        previous: Bounds | None = None
        for offset in self.taken:
            one = self.model.offsets[offset]
            if found and found[-1][1] + 1 == offset and found[-1][2] == one.count and previous == one.origin:
                found[-1] = (found[-1][0], offset, one.count)
            else:
                found.append((offset, offset, one.count))
            previous = one.origin
        return found
