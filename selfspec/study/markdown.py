r"""Names that somebody else chose, as Markdown shows them letter by letter.

A folder may be called `x_1 <b>`; unescaped, such a name changes every line below it.

    literal("my_model")          # r"my\_model"
    code("echo `date`")          # "`` echo `date` ``"
"""

import re

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>~$&#^])")


def literal(text: str) -> str:
    """`text` with everything escaped that Markdown would read as more than text.

    A vertical bar is left to whoever writes a table.
    """
    return _SPECIAL.sub(r"\\\1", text)


def code(text: str) -> str:
    """`text` as a code span, whatever backticks it holds."""
    if "`" not in text:
        return f"`{text}`"
    fence = "`" * (1 + max(len(run) for run in re.findall("`+", text)))
    return f"{fence} {text} {fence}"


def configurations(count: int) -> str:
    """'1 configuration', '12 configurations'."""
    return f"{count} configuration{'' if count == 1 else 's'}"


def prose(text: str) -> str:
    """A line with its code spans kept and everything else shown letter by letter."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if i % 2 else literal(part) for i, part in enumerate(parts))
