"""What can be left out of a draft, and what leaving it out saves, in whole microseconds.

The items of a knapsack: every attention and every MLP that is not protected, and the
head's shortlists, of which at most one is taken. A layer's norms and additions run while
either of its blocks runs, so half of them is counted to each. Knows costs and drafts, no
model and no score.

    items = items_of(profile, context=512, protected={0, 29})
    draft_of(items[:3])                  # SkipDraft(attention={1, 2}, mlp={1})
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from selfspec.costs.profile import CostProfile
from selfspec.decoding.drafts import ShortlistDraft, SkipDraft

ATTENTION, MLP, SHORTLIST = "attention", "mlp", "shortlist"


@dataclass(frozen=True)
class Item:
    """One thing that a draft can do without.

    Attributes:
        kind: attention, mlp or shortlist.
        index: the layer; of a shortlist, how many tokens it keeps.
        microseconds: what a draft step saves without it, from 0.
        tokens: of a shortlist.
    """

    kind: str
    index: int
    microseconds: int
    tokens: tuple[int, ...] = field(default=(), repr=False, compare=False)

    @property
    def name(self) -> str:
        """For tables: "attention 12", "shortlist 8192"."""
        return f"{self.kind} {self.index}"


def items_of(
    profile: CostProfile,
    context: int,
    *,
    protected: Collection[int] = (),
    shortlists: Mapping[int, tuple[int, ...]] | None = None,
) -> tuple[Item, ...]:
    """The blocks in the order in which they run, then the shortlists.

    Args:
        profile: measured seconds of this model's blocks.
        context: tokens in the cache, at which attention is priced.
        protected: layers of which nothing may be left out.
        shortlists: size -> the tokens that the head would still score.

    Raises:
        ValueError: a protected layer, or a shortlist, that the model has not.
    """
    unknown = sorted(i for i in protected if not 0 <= i < profile.num_layers)
    if unknown:
        raise ValueError(
            f"protected layers {unknown}, but the model has {profile.num_layers} "
            f"(0 to {profile.num_layers - 1})"
        )

    def saved(kind: str) -> float:
        return profile.blocks[kind].seconds(1, context)

    found = []
    for layer, kinds in enumerate(zip(profile.attention, profile.mlp, strict=True)):
        if layer not in protected:
            for name, kind in zip((ATTENTION, MLP), kinds, strict=True):
                seconds = saved(kind) + saved("layer") / 2
                found.append(Item(name, layer, _microseconds(seconds)))
    for size, tokens in sorted((shortlists or {}).items()):
        if not len(tokens) == size <= profile.vocab_size:
            raise ValueError(
                f"shortlist {size} has {len(tokens)} of {profile.vocab_size} tokens"
            )
        seconds = saved("head") * (1 - size / profile.vocab_size)
        found.append(Item(SHORTLIST, size, _microseconds(seconds), tuple(tokens)))
    return tuple(found)


def draft_of(items: Iterable[Item]) -> SkipDraft | ShortlistDraft:
    """The draft that leaves these items out.

    Raises:
        ValueError: more than one shortlist.
    """
    chosen = list(items)
    lists = [item for item in chosen if item.kind == SHORTLIST]
    if len(lists) > 1:
        raise ValueError(f"one shortlist at most, got {[i.name for i in lists]}")
    draft = SkipDraft(
        attention={i.index for i in chosen if i.kind == ATTENTION},
        mlp={i.index for i in chosen if i.kind == MLP},
    )
    return ShortlistDraft(draft, lists[0].tokens) if lists else draft


def saved_microseconds(items: Iterable[Item], draft) -> int:
    """What a draft of these items saves: the weight of a knapsack.

    Raises:
        ValueError: it leaves out a block that is not among the items.
    """
    inner = draft.draft if isinstance(draft, ShortlistDraft) else draft
    wanted = {(ATTENTION, i) for i in inner.attention} | {(MLP, i) for i in inner.mlp}
    if isinstance(draft, ShortlistDraft):
        wanted.add((SHORTLIST, len(draft.tokens)))
    known = {(item.kind, item.index): item.microseconds for item in items}
    if wanted - set(known):
        names = sorted(f"{kind} {index}" for kind, index in wanted - set(known))
        raise ValueError(f"not among the items: {', '.join(names)}")
    return sum(known[key] for key in wanted)


def _microseconds(seconds: float) -> int:
    return max(0, round(1e6 * seconds))
