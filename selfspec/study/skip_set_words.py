"""A skip set in words and back, as tables, provenance and labels have it. No MLX.

in_words(SkipDraft({1, 2, 3}, {7}))          # "attention 1-3; MLP 7"
"""

from collections.abc import Iterable

from selfspec.decoding.drafts import ExitDraft, ShortlistDraft, SkipDraft


def in_words(draft) -> str:
    """What a skip, exit or shortlist draft leaves out."""
    if isinstance(draft, ShortlistDraft):
        inner = in_words(draft.draft)
        own = f"shortlist {len(draft.tokens)}"
        return own if inner == "nothing" else f"{inner}; {own}"
    if isinstance(draft, ExitDraft):
        return f"layers from {draft.exit_layer}"
    if not isinstance(draft, SkipDraft):
        raise TypeError(f"no skip set: {draft}")
    parts = [
        f"{name} {spans(layers)}"
        for name, layers in (
            ("layer", draft.whole_layers),
            ("attention", draft.attention - draft.whole_layers),
            ("MLP", draft.mlp - draft.whole_layers),
        )
        if layers
    ]
    return "; ".join(parts) or "nothing"


def spans(numbers: Iterable[int]) -> str:
    """'1-3, 7' of {1, 2, 3, 7}."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found)
