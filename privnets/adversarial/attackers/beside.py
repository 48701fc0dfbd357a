"""Work on the processor's cores beside what the device does, within a pack's share of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

_T = TypeVar("_T")


class Beside:
    """Runs work in threads of its own or, without any, where its result is asked for.

    Whatever the work calls (OpenMP, BLAS) keeps to one core in each thread, and to all that the
    pack has where there are none. Leaving the context drops work that has not begun and waits for
    what has.
    """

    def __init__(self, cores: int, *, spare: bool) -> None:
        """Prepare, without starting a thread.

        Args:
            cores: The pack's share.
            spare: Whether the caller goes on meanwhile, and needs a core itself.
        """
        self._cores = cores
        self._workers = max(1, cores - 1) if spare else cores if cores > 1 else 0
        self._held = ExitStack()
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Beside:
        """Start the threads, if there are to be any."""
        if self._workers:
            # BLAS counts its threads once for the whole process, OpenMP thread by thread.
            self._held.enter_context(_libraries().limit(limits=1, user_api="blas"))
            self._pool = ThreadPoolExecutor(self._workers, "privnets-attackers", _keep_to_one_core)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave no thread behind."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._held.close()

    def submit(self, work: Callable[[], _T]) -> Callable[[], _T]:
        """Begin some work.

        Args:
            work: Must not depend on when it runs, nor beside what.

        Returns:
            Waits for the result and gives it, or raises what the work raised. To be called once.
        """
        if self._pool is None:
            return lambda: self._done_here(work)
        return self._pool.submit(work).result

    def _done_here(self, work: Callable[[], _T]) -> _T:
        with _libraries().limit(limits=self._cores):
            return work()


def _keep_to_one_core() -> None:
    # For good: OpenMP's limit is this thread's own, and ends with it.
    _libraries().limit(limits=1, user_api="openmp")


@cache
def _libraries() -> ThreadpoolController:
    """Of threads, those loaded with scikit-learn included."""
    import sklearn.ensemble  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
