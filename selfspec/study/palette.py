"""Every colour and mark of the book, by what it stands for. Knows no figure and no data.

A method has one colour and one mark on every page, and nothing else has them. All
colours stand out on white, which figures keep in dark mode, and each has a shape beside
it for those who do not tell the colours apart.

    METHODS["lookup"].colour, METHODS["lookup"].marker
    shades("#0072b2", 3)             # the same hue, darker and darker
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """The colour and the mark of one thing."""

    colour: str
    marker: str


# In the order of the book.
METHODS = {
    "skip, two caches": Look("#0072b2", "o"),
    "skip, one cache": Look("#d55e00", "s"),
    "skip, chosen": Look("#882255", "D"),
    "exit": Look("#009e73", "^"),
    "exit, taught": Look("#004d40", "p"),
    "exit, dynamic": Look("#7a7a1f", "h"),
    "fitted exit": Look("#8b1a1a", "<"),
    "shortlist": Look("#b8558f", "v"),
    "lookup": Look("#a06a00", "P"),
    "small model": Look("#5b3fbf", "X"),
}
UNKNOWN = Look("#000000", "*")  # a kind of draft that this version does not know

REFERENCE = "#555555"  # what others published
INK = "#000000"  # what belongs to no method: a machine's curve, break-even
QUIET = "#8a8a8a"

# Parts of a model (Paul Tol's bright scheme, darkened)
PARTS = {
    "attention": "#336699",
    "mlp": "#cc4455",
    "layer": "#8f8426",
    "head": "#771155",
    "rest": "#777777",
}
# Ways to choose blocks, ways to train, kinds of text: lists, in the order of the data
SERIES = (
    *("#332288", "#117733", "#cc6677", "#2b7fa3", "#aa4499"),
    *("#6b6b1d", "#882255", "#999999", "#a0522d", "#000000"),
)
MARKERS = ("o", "s", "^", "v", "P", "X", "D", "p", "h", "*")


def look(name: str) -> Look:
    """Of a method; black for one that is not known."""
    return METHODS.get(name, UNKNOWN)


def shades(colour: str, count: int) -> list[str]:
    """The colour mixed with black, the first one pure; for steps of one method."""
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    found = []
    for place in range(count):
        share = 1 - 0.55 * place / max(1, count - 1)
        found.append("#" + "".join(f"{round(share * part):02x}" for part in parts))
    return found
