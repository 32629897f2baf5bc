"""The picture that stands for the book where somebody shares its address.

Without a measured number, so that it is never out of date. Made by hand when its words
change:

    python -m selfspec.study.social_card book/assets/social-card.png
"""

import sys
from pathlib import Path

SIZE = (12.0, 6.3)  # inches at 100 dots: 1200 x 630, what previews expect


def draw(path: Path) -> None:
    """Write the card as PNG."""
    from selfspec.study import figures

    plt = figures.plt
    figure = plt.figure(figsize=SIZE, dpi=100, facecolor="white")
    ax = figure.add_axes((0.66, 0.14, 0.29, 0.72))
    ax.fill_between([0, 1], [0, 1], 1, color="#009e73", alpha=0.18, linewidth=0)
    ax.plot([0, 1], [0, 1], **figures.BREAK_EVEN | {"linewidth": 2})
    ax.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
    ax.set_xlabel("cost of a draft step", fontsize=16)
    ax.set_ylabel("share accepted", fontsize=16)
    ax.text(0.08, 0.88, "can pay", fontsize=18, transform=ax.transAxes)
    ax.text(0.92, 0.07, "loses", fontsize=18, ha="right", transform=ax.transAxes)
    words = {
        0.70: ("Self-speculation\non your own Mac", 40, "bold"),
        0.44: ("Does a model get faster when it\ndrafts for itself?", 24, "normal"),
        0.19: ("$S = \\frac{1 + A}{c\\,D + v + o}$", 38, "normal"),
    }
    for height, (text, size, weight) in words.items():
        figure.text(0.06, height, text, fontsize=size, weight=weight)
    figure.savefig(path, dpi=100, facecolor="white", metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
