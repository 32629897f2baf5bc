"""Notes about objects, kept for as long as the objects are.

A model of MLX is a dict: it has no hash, and two of them are equal if what they hold
is. So what is known of one model object goes by the object itself. Knows no models.

    sources = Remembered()
    sources[model] = source
    sources.get(model)                 # None for a copy of it
"""

import weakref
from collections.abc import Callable
from typing import Any


class Remembered:
    """A dict whose keys are objects themselves; a key that is freed takes its value."""

    def __init__(self):
        self._found: dict[int, tuple[weakref.ref, Any]] = {}

    def __setitem__(self, thing, value) -> None:
        number = id(thing)
        gone = weakref.ref(thing, lambda _: self._found.pop(number, None))
        self._found[number] = gone, value

    def get(self, thing, default=None):
        known, value = self._found.get(id(thing), (None, default))
        return value if known is not None and known() is thing else default

    def setdefault(self, thing, make: Callable[[], Any]):
        """The value; `make()` if there is none yet."""
        if self.get(thing) is None:
            self[thing] = make()
        return self.get(thing)

    def __len__(self) -> int:
        return len(self._found)
