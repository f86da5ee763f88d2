"""A journal of finished search tasks: an interrupted search goes on where it stopped."""

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gemmulate.encodings.encoding import Encoding

Task = tuple[Any, ...]
Progress = Callable[[int, int], None]  # (done, total)


def silent(done: int, total: int) -> None:
    """Report nothing."""


class Journal:
    """One JSON line per finished task, appended as it ends; a torn last line is ignored. No path: memory only."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.done: dict[str, Encoding | None] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                try:
                    name, fields = json.loads(line)
                except ValueError:
                    continue
                self.done[name] = None if fields is None else _thaw(fields)

    def map(
        self,
        pool: Executor,
        work: Callable[[Task], Encoding | None],
        tasks: Sequence[Task],
        progress: Progress,
    ) -> Iterator[Encoding | None]:
        """Results of work(task) in order; tasks that the journal knows are not searched again."""
        names = [json.dumps([work.__name__, *task]) for task in tasks]
        missing = [task for task, name in zip(tasks, names, strict=True) if name not in self.done]
        results = iter(pool.map(work, missing, chunksize=1))
        for n, name in enumerate(names, start=1):
            if name not in self.done:
                self._put(name, next(results))
            progress(n, len(names))
            yield self.done[name]

    def _put(self, name: str, result: Encoding | None) -> None:
        self.done[name] = result
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as stream:
                stream.write(json.dumps([name, None if result is None else asdict(result)]) + "\n")


def _thaw(fields: dict[str, Any]) -> Encoding:
    def tuples(value: Any) -> Any:
        return tuple(tuples(v) for v in value) if isinstance(value, list) else value

    return Encoding(**{name: tuples(value) for name, value in fields.items()})
