"""Decodes records of internal topics from Arrow buffers to typed columns, without an object per row.

A record type has one struct column {key, value}. The plan of a version (codec.plan) describes the wire format; a
route maps each of its fields to a column. The unreadable part of a malformed row is removed and becomes null. The
numbers of such rows are returned, so that the caller can report the errors.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyTypeObject
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t
from libc.string cimport memcmp, memcpy

from kcore_ext.util.byte_order cimport read_int16, read_int32, read_int64
from kcore_ext.codec.plan cimport (
    ARRAY, BOOL, BYTES, FLOAT64, INT8, INT16, INT32, INT64, RECORDS, STRING, STRUCT, UINT16, UINT32, UUID,
    Op, Plan, Schema, schema_of,
)
from kcore_ext.codec.read cimport UNLIMITED
from kcore_ext.codec.reader cimport Reader, read_uvarint
from kcore_ext.spark.column_store cimport (
    Bytes, Column, ColumnNode, Input, discard, field_column, finish, finish_all, is_ascii, make_room, pad, scalar_column, put_default,
    put_int32, put_text, reserve, struct_column, truncate,
)

cdef enum:
    NULL_LENGTH = -1
    FAILED = -2
    EXHAUSTED = -9          # value of a reader's `found`: out of memory
    LONGEST_STRING = 0x7FFF
    RECORD_TYPES = 256      # upper limit of the record types of a topic

STATUSES = (
    "ok", "tombstone", "control", "no_record", "unknown_type", "unknown_version", "malformed", "other_topic",
)


# ---------------------------------------------------------------- routes of fields
cdef class Mapped:
    """The owner of a `Route`. A route maps the fields of one record class (its codec plan) to columns."""

    def __dealloc__(self):
        PyMem_Free(self.route.ops)
        PyMem_Free(self.route.tags)
        PyMem_Free(self.route.absent)


cdef Place* _places(int count) except NULL:
    cdef Place* places = <Place*>PyMem_Calloc(count + 1, sizeof(Place))
    if places == NULL:
        raise MemoryError
    return places


cdef Mapped _mapped(object cls, int version, bint flexible, ColumnNode node):
    """Returns the route from a version of a class to the struct column `node`."""
    cdef Schema schema = schema_of(<PyTypeObject*>cls)
    cdef Plan* plan = schema.plan(version, flexible)
    cdef Mapped mapped = Mapped.__new__(Mapped)
    cdef Route* route = &mapped.route
    mapped.nested = []
    mapped.node = node
    route.plan = plan
    route.column = &node.column
    route.ops = _places(plan.n_ops)
    route.tags = _places(plan.n_tags)
    route.absent = _places(plan.n_absent)
    _route(mapped, schema, plan.ops, plan.n_ops, route.ops, version, flexible)
    _route(mapped, schema, plan.tags, plan.n_tags, route.tags, version, flexible)
    _route(mapped, schema, plan.absent, plan.n_absent, route.absent, version, flexible)
    return mapped


cdef int _route(Mapped mapped, Schema schema, Op* ops, int count, Place* places, int version, bint flexible) except -1:
    cdef ColumnNode node
    cdef Mapped nested
    cdef int i, at
    for i in range(count):
        at = 0
        while schema.offsets[at] != ops[i].offset:
            at += 1
        node = <ColumnNode>mapped.node.children[at]
        places[i].column = &node.column
        if ops[i].plan == NULL:
            continue
        if ops[i].kind == ARRAY:
            node = <ColumnNode>node.children[0]
        nested = _mapped(schema.fields[at].struct, version, flexible, node)
        mapped.nested.append(nested)
        places[i].nested = &nested.route
    return 0


# ---------------------------------------------------------------- values
cdef int _exhausted(Reader* reader) noexcept:
    reader.found = EXHAUSTED
    return -1


cdef inline Py_ssize_t _length(Reader* reader, bint compact, bint wide, bint nullable) noexcept:
    """Reads a length or count: NULL_LENGTH for an allowed null, FAILED for invalid bytes."""
    cdef unsigned int raw
    cdef Py_ssize_t length
    cdef Py_ssize_t left = reader.end - reader.at
    if compact:
        if left > 0 and reader.at[0] < 0x80:
            raw = reader.at[0]
            reader.at += 1
        elif read_uvarint(reader, &raw) < 0:
            return FAILED
        length = <Py_ssize_t>raw - 1
    elif wide:
        if left < 4:
            return FAILED
        length = read_int32(reader.at)
        reader.at += 4
    else:
        if left < 2:
            return FAILED
        length = read_int16(reader.at)
        reader.at += 2
    if length >= 0:
        return length
    return NULL_LENGTH if nullable else FAILED


cdef inline int _put_raw(Column* column, Reader* reader, const unsigned char* at, Py_ssize_t size) noexcept:
    """Appends bytes as `put_bytes` does. It is inline, because it runs for every text of every record."""
    if column.size + size > column.room and make_room(column, size) < 0:
        return _exhausted(reader)
    if size:  # a column without any bytes has no memory yet
        memcpy(column.values + column.size, at, size)
    column.size += size
    column.length += 1
    column.offsets[column.length] = <int32_t>column.size
    return 0


cdef int _put_text(Column* column, Reader* reader, const unsigned char* at, Py_ssize_t size) noexcept:
    """Appends text that is not ASCII; replaces invalid UTF-8 as Java does, like the codec."""
    return _exhausted(reader) if put_text(column, at, size, b"kcore.java") < 0 else 0


cdef inline int _put_null(Column* column, Reader* reader) noexcept:
    return _exhausted(reader) if pad(column, 1, True) < 0 else 0


cdef inline int _put_string(Column* column, Reader* reader, bint compact, bint nullable) noexcept:
    cdef Py_ssize_t length = _length(reader, compact, False, nullable)
    cdef const unsigned char* at = reader.at
    if length < 0:
        return _put_null(column, reader) if length == NULL_LENGTH else -1
    if length > LONGEST_STRING or length > reader.end - at:
        return -1
    reader.at = at + length
    if is_ascii(at, length):
        return _put_raw(column, reader, at, length)
    return _put_text(column, reader, at, length)


cdef inline int _put_bytes(Column* column, Reader* reader, bint compact, bint nullable) noexcept:
    cdef Py_ssize_t length = _length(reader, compact, True, nullable)
    cdef const unsigned char* at = reader.at
    if length < 0:
        return _put_null(column, reader) if length == NULL_LENGTH else -1
    if length > reader.end - at:
        return -1
    reader.at = at + length
    return _put_raw(column, reader, at, length)


cdef inline int _put_number(Column* column, Reader* reader, int kind) noexcept:
    """Appends a number, a boolean or a UUID."""
    cdef const unsigned char* at = reader.at
    cdef Py_ssize_t left = reader.end - at
    cdef Py_ssize_t row = column.length
    if kind == INT32:
        if left < 4:
            return -1
        (<int32_t*>column.values)[row] = read_int32(at)
        reader.at = at + 4
    elif kind == INT64 or kind == FLOAT64:
        if left < 8:
            return -1
        (<int64_t*>column.values)[row] = read_int64(at)
        reader.at = at + 8
    elif kind == INT16:
        if left < 2:
            return -1
        (<int16_t*>column.values)[row] = read_int16(at)
        reader.at = at + 2
    elif kind == INT8 or kind == BOOL:
        if left < 1:
            return -1
        column.values[row] = at[0]
        reader.at = at + 1
    elif kind == UUID:
        if left < 16:
            return -1
        memcpy(column.values + 16 * row, at, 16)
        reader.at = at + 16
    elif kind == UINT16:
        if left < 2:
            return -1
        (<int32_t*>column.values)[row] = <uint16_t>read_int16(at)
        reader.at = at + 2
    else:
        if left < 4:
            return -1
        (<int64_t*>column.values)[row] = <uint32_t>read_int32(at)
        reader.at = at + 4
    column.length = row + 1
    return 0


# ---------------------------------------------------------------- structures
cdef int _put_array(Op* op, Place* place, Reader* reader) noexcept:
    cdef Column* column = place.column
    cdef Column* items = column.children[0]
    cdef Py_ssize_t count = _length(reader, op.compact, True, op.nullable)
    cdef Py_ssize_t i
    cdef int32_t* numbers
    if count < 0:
        return _put_null(column, reader) if count == NULL_LENGTH else -1
    if count > (reader.end - reader.at) // op.min_size:
        return -1
    if reserve(items, count) < 0:
        return _exhausted(reader)
    if op.item == INT32:
        numbers = <int32_t*>items.values + items.length
        for i in range(count):
            numbers[i] = read_int32(reader.at + 4 * i)
        reader.at += 4 * count
        items.length += count
    elif op.item == STRUCT:
        for i in range(count):
            if _put_struct(place.nested, reader) < 0:
                return -1
    elif op.item == STRING:
        for i in range(count):
            if _put_string(items, reader, op.compact, False) < 0:
                return -1
    elif op.item == BYTES or op.item == RECORDS:
        for i in range(count):
            if _put_bytes(items, reader, op.compact, False) < 0:
                return -1
    else:
        for i in range(count):
            if _put_number(items, reader, op.item) < 0:
                return -1
    column.length += 1
    column.offsets[column.length] = <int32_t>items.length
    return 0


cdef int _put_nested(Op* op, Place* place, Reader* reader) noexcept:
    """Appends a struct nested in a struct."""
    cdef unsigned int present
    if op.nullable:
        if op.tag >= 0:
            if read_uvarint(reader, &present) < 0:
                return -1
        else:
            if reader.at >= reader.end:
                return -1
            present = <signed char>reader.at[0] >= 0
            reader.at += 1
        if not present:
            return _put_null(place.column, reader)
    return _put_struct(place.nested, reader)


cdef inline int _put(Op* op, Place* place, Reader* reader) noexcept:
    """Appends the value of one field."""
    if op.kind <= UUID:
        return _put_number(place.column, reader, op.kind)
    elif op.kind == STRING:
        return _put_string(place.column, reader, op.compact, op.nullable)
    elif op.kind == ARRAY:
        return _put_array(op, place, reader)
    elif op.kind == STRUCT:
        return _put_nested(op, place, reader)
    return _put_bytes(place.column, reader, op.compact, op.nullable)


cdef int _put_tags(Route* route, Reader* reader) noexcept:
    """Reads a tag section: known fields go to their columns, unknown ones are skipped (KIP-482)."""
    cdef Plan* plan = route.plan
    cdef Py_ssize_t row = route.column.length
    cdef unsigned int count, tag, size
    cdef const unsigned char* end = reader.end
    cdef const unsigned char* behind
    cdef int i
    if reader.at < end and reader.at[0] == 0:
        reader.at += 1
        count = 0
    elif read_uvarint(reader, &count) < 0 or <Py_ssize_t>count > (end - reader.at) // 2:
        return -1
    while count:
        count -= 1
        if read_uvarint(reader, &tag) < 0 or read_uvarint(reader, &size) < 0:
            return -1
        if <Py_ssize_t>size > end - reader.at:
            return -1
        behind = reader.at + size
        for i in range(plan.n_tags):
            if <unsigned int>plan.tags[i].tag != tag:
                continue
            truncate(route.tags[i].column, row)  # if a tag is repeated, its last value counts
            reader.end = behind
            if _put(&plan.tags[i], &route.tags[i], reader) < 0:
                return -1
            reader.end = end
            break
        reader.at = behind
    return 0


cdef int _put_struct(Route* route, Reader* reader) noexcept:
    """Appends one struct: a value for every field of its column."""
    cdef Plan* plan = route.plan
    cdef Column* column
    cdef int i
    for i in range(plan.n_ops):
        if _put(&plan.ops[i], &route.ops[i], reader) < 0:
            return -1
    if plan.flexible:
        if _put_tags(route, reader) < 0:
            return -1
        for i in range(plan.n_tags):
            column = route.tags[i].column
            if column.length == route.column.length and put_default(column) < 0:
                return _exhausted(reader)
    for i in range(plan.n_absent):
        if put_default(route.absent[i].column) < 0:
            return _exhausted(reader)
    route.column.length += 1
    return 0


cdef int _read(Route* route, const unsigned char* at, Py_ssize_t size) except -1:
    """Appends the struct that follows a two-byte version.

    Returns False, with nothing appended, if the bytes are malformed.
    """
    cdef Reader reader
    cdef Py_ssize_t row = route.column.length
    reader.start = at
    reader.at = at + 2
    reader.end = at + size
    reader.reason = NULL
    reader.found = -1
    reader.elements_left = UNLIMITED
    if _put_struct(route, &reader) == 0:
        return True
    if reader.found == EXHAUSTED:
        raise MemoryError
    truncate(route.column, row)
    return False


# ---------------------------------------------------------------- record types
cdef class RecordType:
    """One record type: its struct column, and the routes from its key and value versions to this column."""

    def __cinit__(self, str name, key, value, bint wanted):
        cdef ColumnNode key_node = struct_column([field_column(spec) for spec in key.FIELDS])
        cdef ColumnNode value_node = struct_column([field_column(spec) for spec in value.FIELDS])
        self.name = name
        self.wanted = wanted
        self.node = struct_column([key_node, value_node])
        self.key = _mapped(key, 0, 0 >= key.FLEXIBLE_SINCE, key_node)
        self.low, self.high = value.MIN_VERSION, value.MAX_VERSION
        self.flexible_since = value.FLEXIBLE_SINCE
        self.values = [
            _mapped(value, version, version >= self.flexible_since, value_node)
            for version in range(self.low, self.high + 1)
        ]

    cdef int read(self, Bytes* key, Bytes* value, Py_ssize_t row) except -1:
        """Appends one record at `row`: key and value, only the key, or nothing (BAD_KEY).

        Returns the record's status.
        """
        cdef Column* column = &self.node.column
        cdef Column* values = column.children[1]
        cdef int status, version
        if not self.wanted:
            truncate(column, 0)
            row = 0
        if reserve(column, row + 1 - column.length) < 0:
            raise MemoryError
        if row > column.length and pad(column, row - column.length, True) < 0:
            raise MemoryError
        if not _read(&self.key.route, key.at, key.size):
            return BAD_KEY
        if value.at == NULL:
            status = TOMBSTONE
        elif value.size < 2:
            status = MALFORMED
        else:
            version = read_int16(value.at)
            if version > self.high and self.high >= self.flexible_since:
                version = self.high
            if version < self.low or version > self.high:
                status = UNKNOWN_VERSION
            elif _read(&(<Mapped>self.values[version - self.low]).route, value.at, value.size):
                status = OK
            else:
                # A newer version was read as the newest known one, but its status is still UNKNOWN_VERSION.
                status = MALFORMED if read_int16(value.at) <= self.high else UNKNOWN_VERSION
        if status != OK and pad(values, 1, True) < 0:
            raise MemoryError
        column.length += 1
        return status


# ---------------------------------------------------------------- batches
cdef class RecordColumns:
    def __cinit__(self, topics, types):
        cdef dict made = {}
        self.types = []
        self.topics = [topic.encode() for topic in topics]
        self.by_type = []
        for classes in topics.values():
            places = [-1] * RECORD_TYPES
            for record_type, name, key, value in classes:
                if name not in made:
                    made[name] = len(self.types)
                    self.types.append(RecordType(name, key, value, name in types))
                places[record_type] = made[name]
            self.by_type.append(places)
        self.status = scalar_column(INT8)
        self.kind = scalar_column(INT32)
        self.record_type = scalar_column(INT32)
        self.version = scalar_column(INT32)

    @property
    def names(self):
        return [(<RecordType>one).name for one in self.types]

    def read(self, Py_ssize_t size, Input topics, Input keys, Input values, Input control, Input batch_only):
        try:
            return self._read(size, topics, keys, values, control, batch_only)
        except:
            self._discard()  # incomplete rows, or rows of a batch that the caller abandons
            raise

    cdef list _read(self, Py_ssize_t size, Input topics, Input keys, Input values, Input control, Input batch_only):
        cdef Bytes topic, key, value
        cdef Py_ssize_t row
        cdef int status
        cdef list odd = []
        for node in (self.status, self.kind, self.record_type, self.version):
            if reserve(&(<ColumnNode>node).column, size) < 0:
                raise MemoryError
        for row in range(size):
            if batch_only is not None and batch_only.is_true(row):
                self._head(NO_RECORD, -1, NULL, NULL)
                continue
            if control is not None and control.is_true(row):
                self._head(CONTROL, -1, NULL, NULL)
                continue
            topics.get(row, &topic)
            keys.get(row, &key)
            values.get(row, &value)
            status = self._row(row, &topic, &key, &value)
            if status == MALFORMED or status == UNKNOWN_VERSION:
                odd.append(row)
        self._close(size)
        return odd

    cdef int _topic(self, Bytes* topic) except -2:
        """Returns the index of the topic; -1 if the topic is unknown."""
        cdef bytes name
        cdef int i
        if topic.at == NULL:
            return -1
        for i in range(len(self.topics)):
            name = <bytes>self.topics[i]
            if len(name) == topic.size and memcmp(<const char*>name, topic.at, topic.size) == 0:
                return i
        return -1

    cdef int _row(self, Py_ssize_t row, Bytes* topic, Bytes* key, Bytes* value) except -1:
        """Decodes one record and appends its head."""
        cdef int at = self._topic(topic)
        cdef int place = -1
        cdef int record_type, status
        if at < 0:
            return self._head(OTHER_TOPIC, -1, NULL, NULL)
        if key.at == NULL:
            return self._head(MALFORMED, -1, NULL, NULL)
        if key.size >= 2:
            record_type = read_int16(key.at)
            if 0 <= record_type < RECORD_TYPES:
                place = (<list>self.by_type[at])[record_type]
        if place < 0:
            return self._head(UNKNOWN_TYPE, -1, key, value)
        status = (<RecordType>self.types[place]).read(key, value, row)
        if status == BAD_KEY:
            return self._head(MALFORMED, -1, key, value)
        return self._head(status, place, key, value)

    cdef int _head(self, int status, int place, Bytes* key, Bytes* value) except -1:
        """Appends status, type, record type and version; record type and version only if the bytes contain them."""
        cdef Column* column = &self.status.column
        (<int8_t*>column.values)[column.length] = <int8_t>status
        column.length += 1
        _put_int(&self.kind.column, place, place >= 0)
        if key != NULL and key.size >= 2:
            _put_int(&self.record_type.column, read_int16(key.at), True)
        else:
            _put_int(&self.record_type.column, 0, False)
        if value != NULL and value.size >= 2:
            _put_int(&self.version.column, read_int16(value.at), True)
        else:
            _put_int(&self.version.column, 0, False)
        return status

    cdef int _close(self, Py_ssize_t size) except -1:
        """Pads every non-empty column to the length of the batch."""
        cdef RecordType kind
        cdef Column* column
        for one in self.types:
            kind = <RecordType>one
            column = &kind.node.column
            if not kind.wanted:
                truncate(column, 0)
            elif 0 < column.length < size:
                if reserve(column, size - column.length) < 0 or pad(column, size - column.length, True) < 0:
                    raise MemoryError
        return 0

    cdef void _discard(self) noexcept:
        """Removes all rows of all columns."""
        discard(self.status)
        discard(self.kind)
        discard(self.record_type)
        discard(self.version)
        for record_type in self.types:
            discard((<RecordType>record_type).node)

    def take_heads(self):
        return tuple(finish_all([self.status, self.kind, self.record_type, self.version]))

    def take(self, str name):
        cdef RecordType kind
        for one in self.types:
            kind = <RecordType>one
            if kind.name == name:
                return finish(kind.node) if kind.node.column.length else None
        raise KeyError(name)


cdef int _put_int(Column* column, int32_t number, bint valid) except -1:
    if not valid:
        if pad(column, 1, True) < 0:
            raise MemoryError
        return 0
    put_int32(column, number)
    return 0
