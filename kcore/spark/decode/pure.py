"""Decodes records to typed columns in pure Python: replaces `decode.compiled` on executors without a build."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kcore.spark.decode.ddl import arrow_struct
from kcore.spark.decode.pure_record import Fields, Head, decode_record
from kcore.spark.decode.record_types import HEAD_DDL, record_ddl


class PureDecoder:
    """The `Decoder` that creates an object per value (see `kcore.spark.decode.columns`)."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._kinds = {name: arrow_struct(record_ddl(name)) for name in names}

    def decode(self, batch: pa.RecordBatch) -> tuple[list[pa.Array], list[pa.Array]]:
        """Decodes one batch, as `Decoder.decode` documents."""
        size = batch.num_rows
        heads: list[Head] = []
        bodies: dict[str, list[Fields]] = {name: [] for name in self._kinds}
        positions: dict[str, list[int | None]] = {name: [None] * size for name in self._kinds}
        columns = [batch.column(name).to_pylist() for name in ("topic", "key", "value")]
        columns += [
            batch.column(name).to_pylist() if name in batch.schema.names else [False] * size
            for name in ("control", "batch_only")
        ]
        for row, (topic, key, value, control, batch_only) in enumerate(zip(*columns, strict=True)):
            if control or batch_only:
                heads.append(("no_record" if batch_only else "control", None, None, None, None))
                continue
            head, body = decode_record(topic, key, value)
            heads.append(head)
            if body is not None and head[3] in bodies:
                positions[head[3]][row] = len(bodies[head[3]])
                bodies[head[3]].append(body)
        parts: list[Any] = list(zip(*heads, strict=True)) or [()] * len(arrow_struct(HEAD_DDL))
        return (
            [pa.array(part, field.type) for part, field in zip(parts, arrow_struct(HEAD_DDL), strict=True)],
            [_spread(bodies[name], positions[name], kind) for name, kind in self._kinds.items()],
        )


def _spread(bodies: list[Fields], positions: list[int | None], kind: pa.DataType) -> pa.Array:
    """Returns a struct column: each row has the struct at its position in `bodies`, or null for position None."""
    if not bodies:
        return pa.nulls(len(positions), kind)
    return pa.array(bodies, kind).take(pa.array(positions, pa.int64()))
