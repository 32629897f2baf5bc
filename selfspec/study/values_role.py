"""The {result} role: a number in prose that comes from results, or says it is missing.

pages.py writes book/_generated/values.json; this Sphinx extension reads it. Every page
that uses the role is noted to depend on that file, so an ordinary rebuild shows new
figures. A key that the file lacks is a warning, which a strict build turns into an
error; a key whose value is null was not measured, and the page says so. Knows neither
MLX nor how values came about.

    The best configuration reached {result}`naive-sweep.best_speedup:.2f` times ...
"""

import json
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

VALUES = "_generated/values.json"
NOT_MEASURED = "not yet measured"

logger = logging.getLogger(__name__)


class ResultRole(SphinxRole):
    """`key` or `key:format`, the format as in Python's format()."""

    def run(self):
        self.env.note_dependency(VALUES)
        key, _, spec = self.text.partition(":")
        try:
            shown = lookup(Path(self.env.srcdir) / VALUES, key.strip(), spec)
        except ValueError as error:
            logger.warning(
                str(error), location=self.get_location(), type="selfspec", subtype="key"
            )
            shown = "?"
        return [nodes.inline(self.rawtext, shown, classes=["result"])], []


def lookup(path: Path, key: str, spec: str = "") -> str:
    """The value of `key` as text.

    Raises:
        ValueError: no such file or key, or a format that does not fit.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ValueError(
            f"{VALUES} cannot be read. Way out: run `selfspec book`"
        ) from None
    if key not in values:
        raise ValueError(f"results hold no value named {key!r} ({VALUES} lists them)")
    if values[key] is None:
        return NOT_MEASURED
    try:
        return format(values[key], spec)
    except (ValueError, TypeError):
        raise ValueError(
            f"the format {spec!r} does not fit {key} = {values[key]!r}"
        ) from None


def setup(app):
    """Called by Sphinx."""
    app.add_role("result", ResultRole())
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
