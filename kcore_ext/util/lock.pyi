from types import TracebackType

class _WithStatement:
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

class Lock(_WithStatement):
    """A `threading.Lock` that a `with` statement releases even if memory runs out."""

    def locked(self) -> bool: ...

class RLock(_WithStatement):
    """A `threading.RLock` that a `with` statement releases even if memory runs out."""

    def is_owned(self) -> bool:
        """Returns True if the calling thread holds the lock."""
