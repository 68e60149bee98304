"""APIs that are made when they are first asked for, since to import all of them takes a fifth of a start.

A server makes the rest soon after its start (`ServedApis.make_all`): later the process may have no file descriptor left
to read a module with.

A table says of each key how its API is made, another one which versions it has. The maker takes the class from its
package (`kcore.broker.apis` and the like), which finds the class's file when the name is first used: to the type
checker it is an import like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from kcore.protocol.messages import module_name

if TYPE_CHECKING:
    from kcore.protocol.api_keys import ApiKey
    from kcore.runtime.api import Api

Maker = Callable[[], "Api[Any, Any]"]


class DeferredApi(NamedTuple):
    """What is known of an API before it is made.

    Attributes:
        key: its key.
        versions: those that are served, lowest and highest; the same as the class says.
        maker: makes it.
    """

    key: ApiKey
    versions: tuple[int, int]
    maker: Maker

    def make(self) -> Api[Any, Any]:
        """The API itself, which must be what was announced."""
        api = self.maker()
        assert (api.key, api.versions) == (self.key, self.versions), f"{api.key!r} {api.versions} is not {self}"
        return api


class ServedApis(Mapping[int, "Api[Any, Any]"]):
    """The APIs of a node by key. To look one up makes it; to ask which there are does not.

    Args:
        deferred: what is served.

    Attributes:
        made: those that were looked up before. Whoever looks up with every request may look here first.
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
        """Makes the APIs that were not asked for yet, one of them between two `yield`s.

        Raises:
            ImportError, OSError: a module cannot be read, for want of file descriptors for instance.
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


def deferred_apis(versions: Mapping[ApiKey, tuple[int, int]], makers: Mapping[ApiKey, Maker]) -> list[DeferredApi]:
    """The APIs of a table.

    Args:
        versions: those that are served; it may have more keys.
        makers: make the APIs.
    """
    return [DeferredApi(key, versions[key], maker) for key, maker in makers.items()]


def api_finder(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package of APIs: finds `DeleteAclsApi` in its file, `delete_acls`, when it is first used.

    Args:
        package: the package's name.
    """

    def find(name: str) -> Any:
        if not name.endswith("Api"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        file = f"{package}.{module_name(name.removesuffix('Api'))}"
        try:
            module = import_module(file)
        except ModuleNotFoundError as error:
            if error.name != file:
                raise  # the file is there; what it imports is not
            raise AttributeError(f"module {package!r} has no attribute {name!r}") from error
        return getattr(module, name)

    return find
