"""Types of the decorator `task` for checkers: Django has none, and those of django-stubs do not know a job's fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, overload

from typing_extensions import TypedDict, Unpack

from .._app import Backoff

P = ParamSpec("P")


class Options(TypedDict, total=False):
    priority: int
    queue_name: str
    backend: str
    run_after: datetime | None
    key: str
    group_key: str
    dedup_key: str
    unique_key: str
    on_conflict: str
    debounce_max: timedelta
    timeout: timedelta
    deadline: datetime | timedelta
    holds: int
    waits_for: Sequence[int]
    on_dead: str
    max_attempts: int
    backoff: Backoff


class Task(Protocol[P]):
    """A task and its arguments. Its results are Django's TaskResult."""

    func: Callable[..., Any]
    priority: int
    queue_name: str
    run_after: datetime | None

    @property
    def name(self) -> str: ...
    @property
    def module_path(self) -> str: ...
    def using(self, **options: Unpack[Options]) -> Task[P]: ...
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...
    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...
    def call(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...
    async def acall(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...
    def get_result(self, result_id: str) -> Any: ...
    async def aget_result(self, result_id: str) -> Any: ...


class Decorator(Protocol):
    @overload
    def __call__(self, function: Callable[P, Any], /) -> Task[P]: ...
    @overload
    def __call__(self, *, takes_context: Literal[True], **options: Unpack[Options]) -> Callable[[Callable[Concatenate[Any, P], Any]], Task[P]]: ...
    @overload
    def __call__(self, *, takes_context: Literal[False] = False, **options: Unpack[Options]) -> Callable[[Callable[P, Any]], Task[P]]: ...
