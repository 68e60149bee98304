"""The input of all assignors as arrays. A `Problem` describes the members and topics of one group."""

import numpy as np
import numpy.typing as npt

class Problem:
    members: int
    topics: int
    partitions: int
    kinds: int
    classes: int
    racks: int
    subscribed_partitions: int
    equal: bool
    homogeneous: bool
    @staticmethod
    def from_arrays(
        topic_partitions: npt.NDArray[np.int32],
        kind_of: npt.ArrayLike,
        kind_first: npt.ArrayLike,
        kind_topics: npt.ArrayLike,
        order: npt.ArrayLike | None = None,
        generations: npt.ArrayLike | None = None,
        member_racks: npt.ArrayLike | None = None,
        rack_first: npt.ArrayLike | None = None,
        rack_list: npt.ArrayLike | None = None,
    ) -> Problem: ...
