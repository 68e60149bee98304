"""APIs that are created at their first use, since importing all of them takes a fifth of the start time.

A server creates the remaining APIs soon after its start (`ServedApis.make_all`), because later the process may have no
file descriptor left to read a module.

`kcore.served_apis` has the versions of each API and a function that creates it. The function takes the class from its
package (such as `kcore.broker.apis`), which imports the class's file when the name is first used. The type checker sees
an ordinary import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.late_imports import import_late
from kcore.protocol.messages import module_name

if TYPE_CHECKING:
    from kcore.protocol.api_keys import ApiKey
    from kcore.runtime.api import Api

Maker = Callable[[], "Api[Any, Any]"]


class DeferredApi(NamedTuple):
    """An API that may not have been created yet.

    Attributes:
        key: the API's key.
        versions: the lowest and the highest served version; equal to the class's `versions`.
        maker: creates the API.
    """

    key: ApiKey
    versions: tuple[int, int]
    maker: Maker

    def make(self) -> Api[Any, Any]:
        """Creates the API, whose key and versions must be the declared ones."""
        api = self.maker()
        assert (api.key, api.versions) == (self.key, self.versions), f"{api.key!r} {api.versions} is not {self}"
        return api


class ServedApis(Mapping[int, "Api[Any, Any]"]):
    """The APIs of a node by key. A look-up creates the API; iteration and `in` do not.

    Args:
        deferred: the served APIs.

    Attributes:
        made: the APIs that were created before. Code that runs for every request looks here first.
    """

    __slots__ = ("_deferred", "made")

    def __init__(self, deferred: Iterable[DeferredApi]) -> None:
        self._deferred = {int(api.key): api for api in deferred}
        self.made: dict[int, Api[Any, Any]] = {}

    def __getitem__(self, key: int) -> Api[Any, Any]:
        api = self.made.get(key)
        if api is None:
            api = self.made[key] = self._deferred[key].make()
        return api

    def make_all(self) -> Iterator[None]:
        """Creates the remaining APIs, one before each `yield`.

        Raises:
            ImportError, OSError: a module cannot be read, for example for lack of file descriptors.
        """
        for key in self._deferred:
            if key not in self.made:
                self[key]
                yield

    def __contains__(self, key: object) -> bool:
        return key in self._deferred

    def __iter__(self) -> Iterator[int]:
        return iter(self._deferred)

    def __len__(self) -> int:
        return len(self._deferred)


def api_finder(package: str) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package of APIs.

    It imports a class when the class is first used, for example `DeleteAclsApi` from the file `delete_acls`.

    Args:
        package: the package's name.
    """

    def find(name: str) -> Any:
        if not name.endswith("Api"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        file = f"{package}.{module_name(name.removesuffix('Api'))}"
        try:
            module = import_late(file)
        except ModuleNotFoundError as error:
            if error.name != file:
                raise  # the file exists; a module that it imports is missing
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from error
        return getattr(module, name)

    return find
