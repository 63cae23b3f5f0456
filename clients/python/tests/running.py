"""A worker that runs in a test, of either kind."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

import penstock
from penstock import aio
from penstock._desk import Options

Run = Callable[..., "Running"]


class Running:
    """A worker of either kind, in a separate thread. Handlers are plain functions in any case."""

    def __init__(self, kind: str, db: Any, queue: str, handler: Callable[..., object] | Mapping[str, Callable[..., object]], tx: bool, options: dict[str, Any]):
        self.kind = kind
        self.ended: list[tuple[str, int]] = []
        self.error: BaseException | None = None
        options = {"concurrency": 4, "observe": lambda word, job, _: self.ended.append((word, job.id)), **options}
        self.stop: Callable[[], object] = lambda: None
        ready = threading.Event()

        def threads() -> None:
            from penstock._worker import in_transaction

            closing: Callable[[], None] = lambda: None  # noqa: E731
            chosen = handler
            if tx:
                chosen, closing = in_transaction(db, queue, handler, Options(**options))
            worker = penstock.Worker(db, queue, chosen, Options(**options))
            self.stop = worker.stop
            ready.set()
            try:
                worker.run()
            finally:
                closing()

        async def main() -> None:
            def on_thread(one: Callable[..., object]) -> Callable[..., Any]:
                async def call(*args: Any) -> object:
                    return await asyncio.get_running_loop().run_in_executor(None, one, *args)

                return call

            chosen: Any = {k: on_thread(one) for k, one in handler.items()} if isinstance(handler, Mapping) else on_thread(handler)
            worker = aio.Worker(db, queue, chosen, Options(**options))
            loop = asyncio.get_running_loop()

            def stop() -> None:
                with contextlib.suppress(RuntimeError):  # it has ended
                    loop.call_soon_threadsafe(worker.stop)

            self.stop = stop
            ready.set()
            await worker.run()

        def run() -> None:
            try:
                if kind == "threads":
                    threads()
                else:
                    asyncio.run(main())
            except BaseException as e:
                self.error = e
                ready.set()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        ready.wait()

    def join(self) -> None:
        self.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()

    def words(self, job: int) -> list[str]:
        return [word for word, id_ in self.ended if id_ == job]
