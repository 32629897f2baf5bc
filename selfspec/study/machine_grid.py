"""Which drafts the experiment "machine" times: every kind, cheap and dear, good and bad.

The point is not to find the best draft but to try the prediction where it could fail,
so whole layers, single blocks, exits, shortlists and the free draft are all there.
Everything is derived from the number of layers, so any model has its own.

    drafts = make_drafts(loaded)                  # label -> what drafts
    grid = make_grid(drafts, SIZES["paper"])
"""

from dataclasses import asdict, dataclass
from typing import Any

from selfspec.costs.profiling import BUDGET
from selfspec.decoding import ExitDraft, LookupDraft, ShortlistDraft, SkipDraft
from selfspec.study.draft_grid import Case, DraftGrid
from selfspec.study.errors import StudyError
from selfspec.study.shortlist_tokens import shortlist_tokens

LONG, ALL = (2, 4), (1, 2, 4)
SKIPPED = {f"skip {percent} %": percent / 100 for percent in (10, 20, 30, 50)}
EXITS = {"exit 1/2": (1, 2), "exit 4/5": (4, 5), "exit 14/15": (14, 15)}
MLPS, ATTENTIONS = 3, 6  # middle blocks of one kind that are left out


@dataclass(frozen=True)
class MachineSize:
    """How much is measured.

    Attributes:
        drafts: kind of draft -> draft lengths; kinds are the keys of `make_drafts`.
        num_prompts, num_tokens, repeats: of the timed pairs.
        calibration_prompts, calibration_tokens: of the untimed runs before them.
        cost_repeats: of v(m) at each thread count, and of c timed directly.
        budget: seconds in which the profile is measured.
    """

    drafts: dict[str, tuple[int, ...]]
    num_prompts: int
    num_tokens: int = 24
    repeats: int = 1
    calibration_prompts: int = 4
    calibration_tokens: int = 24
    cost_repeats: int = 7
    budget: float = BUDGET


SIZES = {
    "smoke": MachineSize(
        {"skip 10 %": (2,), "exit 4/5": (2,)},
        num_prompts=2,
        num_tokens=16,
        calibration_prompts=1,
        calibration_tokens=8,
        cost_repeats=1,
        budget=3.0,  # only the mechanics are tried
    ),
    "default": MachineSize(
        dict.fromkeys(("skip 10 %", "exit 4/5", "shortlist", "lookup"), LONG),
        num_prompts=6,
        calibration_prompts=2,
        cost_repeats=4,
    ),
    "paper": MachineSize(
        {
            **dict.fromkeys(SKIPPED, LONG),
            **dict.fromkeys(("one layer", "MLPs", "attentions", *EXITS), ALL),
            **dict.fromkeys(("shortlist", "shortlist on skip 10 %"), ALL),
            "lookup": LONG,
        },
        num_prompts=8,
    ),
}


def resolve_size(size: str, **overrides: Any) -> MachineSize:
    """The size of that name, with every override that is not None.

    Raises:
        StudyError: unknown size.
    """
    if size not in SIZES:
        raise StudyError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
    given = {name: value for name, value in overrides.items() if value is not None}
    return MachineSize(**{**asdict(SIZES[size]), **given})


def make_drafts(loaded) -> dict[str, tuple[str, Any]]:
    """Kind -> (label, what drafts), for this model; equal drafts come once.

    Raises:
        StudyError: a model of one layer.
    """
    num_layers = loaded.source.num_layers
    if num_layers < 2:
        raise StudyError(
            f"{loaded.source.name} has {num_layers} layer, so there is nothing to leave "
            "out. Way out: a model with more layers"
        )
    found: dict[str, tuple[str, Any]] = {
        kind: (kind, SkipDraft.middle(num_layers, fraction))
        for kind, fraction in SKIPPED.items()
    }
    one = _middle(num_layers, 1)
    mlps, attentions = _middle(num_layers, MLPS), _middle(num_layers, ATTENTIONS)
    found["one layer"] = f"skip layer {min(one)}", SkipDraft(one, one)
    found["MLPs"] = f"skip MLP of {_span(mlps)}", SkipDraft(mlp=mlps)
    found["attentions"] = (
        f"skip attention of {_span(attentions)}",
        SkipDraft(attention=attentions),
    )
    for kind, (part, whole) in EXITS.items():
        layer = min(num_layers - 1, max(1, round(num_layers * part / whole)))
        found[kind] = f"exit {layer}", ExitDraft(layer)
    tokens = shortlist_tokens(loaded)
    _, ten = found["skip 10 %"]
    label = f"shortlist {len(tokens)}"
    found["shortlist"] = label, ShortlistDraft(SkipDraft(), tokens)
    found["shortlist on skip 10 %"] = (
        f"{label} on skip 10 %",
        ShortlistDraft(ten, tokens),
    )
    found["lookup"] = "lookup", LookupDraft()
    seen: dict[Any, str] = {}
    for kind, (_, draft) in found.items():
        seen.setdefault(draft, kind)
    return {kind: found[kind] for kind in seen.values()}


def make_grid(drafts: dict[str, tuple[str, Any]], size: MachineSize) -> DraftGrid:
    """Each draft a group, whose lengths share a baseline.

    Raises:
        StudyError: values outside the grid's rules.
    """
    groups = [
        tuple(Case(*drafts[kind], num_draft_tokens=length) for length in lengths)
        for kind, lengths in size.drafts.items()
        if kind in drafts
    ]
    return DraftGrid(
        groups=tuple(groups),
        num_prompts=size.num_prompts,
        num_tokens=size.num_tokens,
        repeats=size.repeats,
        calibration_prompts=size.calibration_prompts,
        calibration_tokens=size.calibration_tokens,
    )


def _middle(num_layers: int, count: int) -> frozenset[int]:
    """That many layers in the middle, always fewer than all."""
    count = min(count, num_layers - 1)
    start = (num_layers - count) // 2
    return frozenset(range(start, start + count))


def _span(layers: frozenset[int]) -> str:
    first, last = min(layers), max(layers)
    return f"{first}" if first == last else f"{first} to {last}"
