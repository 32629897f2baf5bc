"""A fitted bridge as two files: safetensors in half precision, and a card in JSON.

The card says which model the bridge was fitted to, by the checksum of its weights and
how they are stored, because a bridge is worth nothing anywhere else: nothing would
fail, it would only never be accepted. So another model is refused.

    save_bridge(draft, Path("bridge.safetensors"), source, {"tokens": 40_000})
    draft = load_bridge("bridge.safetensors", loaded)      # an AdapterDraft
    card_of("bridge.safetensors").acceptance
"""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import mlx.core as mx

from selfspec.decoding import AdapterDraft, Bridge, ShortlistDraft
from selfspec.models import Loaded, device
from selfspec.models.loading import source_of
from selfspec.models.source import ModelSource
from selfspec.training.errors import TrainingError

HALF = mx.float16
SHORTLIST = "shortlist"  # the one array beside the weights
FIT = "Way out: selfspec fit --model {name}"


@dataclass(frozen=True)
class Card:
    """What is known of a bridge.

    Attributes:
        model: name, kind, revision and checksum of the model's weights.
        quantisation: how that model's weights are stored.
        exit_layer: E; kind: of the bridge; num_parameters: of the bridge.
        shortlist: how many tokens it was taught to choose among; 0 for all.
        data: what it was fitted on: tokens, texts, shares.
        acceptance: on held-out texts, by draft position from the first.
        curve: of the training, one row a look at held-out texts.
        settings: of the training.
        date: when it was finished.
    """

    model: dict[str, str]
    quantisation: str
    exit_layer: int
    kind: str
    num_parameters: int
    shortlist: int
    data: dict[str, Any]
    acceptance: list[float]
    curve: list[dict[str, Any]]
    settings: dict[str, Any]
    date: str
    format: int = field(default=1)


def stored_as(source: ModelSource) -> str:
    """How the weights are stored, whatever they became in memory."""
    return source.quantisation.split(", expanded")[0].split(", kept packed")[0]


def save_bridge(
    draft: AdapterDraft | ShortlistDraft,
    path: Path,
    source: ModelSource,
    *,
    data: Mapping[str, Any],
    acceptance: Sequence[float],
    settings: Mapping[str, Any],
    curve: Sequence[Mapping[str, Any]] = (),
    date: str,
) -> Card:
    """Write the bridge and its card, each replaced whole or not at all.

    Raises:
        TrainingError: the folder cannot be written.
    """
    tokens = draft.tokens if isinstance(draft, ShortlistDraft) else ()
    inner = draft.draft if isinstance(draft, ShortlistDraft) else draft
    bridge = inner.bridge
    card = Card(
        model={
            "name": source.name,
            "kind": source.kind,
            "revision": source.revision,
            "sha256": source.sha256,
            "architecture": source.architecture,
        },
        quantisation=stored_as(source),
        exit_layer=inner.exit_layer,
        kind=bridge.kind,
        num_parameters=bridge.num_parameters,
        shortlist=len(tokens),
        data=dict(data),
        acceptance=[round(rate, 4) for rate in acceptance],
        curve=[dict(row) for row in curve],
        settings=dict(settings),
        date=date,
    )
    arrays = {name: array.astype(HALF) for name, array in bridge.weights.items()}
    if tokens:
        arrays[SHORTLIST] = mx.array(sorted(tokens), mx.uint32)
    temporary = path.with_name(f".{os.getpid()}.tmp.safetensors")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mx.save_safetensors(str(temporary), arrays, metadata={"format": "mlx"})
        os.replace(temporary, path)
        temporary = temporary.with_suffix(".json")
        text = json.dumps(asdict(card), indent=1, sort_keys=True)
        temporary.write_text(text + "\n", encoding="utf-8")
        os.replace(temporary, path.with_suffix(".json"))
    except (OSError, RuntimeError) as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise TrainingError(
            f"cannot write {path.name}: {error}. Way out: free some disk space or make "
            "the folder writable"
        ) from None
    return card


def card_of(path: str | os.PathLike) -> Card:
    """What is known of a bridge.

    Raises:
        TrainingError: no such bridge, or a card that says something else.
    """
    path = Path(path)
    beside = path.with_suffix(".json")
    missing = next((p.name for p in (path, beside) if not p.is_file()), None)
    if missing:
        raise TrainingError(
            f"there is no {missing} in {path.parent.name or '.'}: a bridge is a "
            f".safetensors file and a .json file. {FIT.format(name='NAME')}"
        )
    try:
        values = json.loads(beside.read_text(encoding="utf-8"))
        known = {one.name for one in fields(Card)}
        if set(values) != known:
            raise ValueError(f"unknown or missing keys {sorted(set(values) ^ known)}")
        return Card(**values)
    except (ValueError, TypeError) as error:
        raise TrainingError(
            f"{beside.name} is no card of a bridge ({str(error).splitlines()[0]}). "
            f"{FIT.format(name='NAME')}"
        ) from None


def load_bridge(
    path: str | os.PathLike, loaded: Loaded | Any
) -> AdapterDraft | ShortlistDraft:
    """The draft of a bridge file, checked against the model that shall use it.

    Args:
        path: the .safetensors file; its card lies beside it.
        loaded: what `selfspec.load` gave, or the model in it.

    Returns:
        An AdapterDraft; with the shortlist it was taught on, if it was.

    Raises:
        TrainingError: missing, truncated, or fitted to another model or quantisation.
    """
    path = Path(path)
    card = card_of(path)
    source = loaded.source if isinstance(loaded, Loaded) else source_of(loaded)
    if source is None:
        raise TrainingError(
            "which model this is cannot be told, so a bridge cannot be checked against "
            "it. Way out: a model as selfspec.load gives it"
        )
    _check_model(path, card, source)
    try:
        arrays = mx.load(str(path))
        # written on a CPU and on a GPU alike; float32 is the fast one on a CPU
        mx.eval(arrays)
        tokens = arrays.pop(SHORTLIST, mx.array([], mx.uint32)).tolist()
        draft = AdapterDraft(card.exit_layer, Bridge(card.kind, arrays))
        if (draft.bridge.num_parameters, len(tokens)) != (
            card.num_parameters,
            card.shortlist,
        ):
            raise ValueError("not the arrays that its card tells of")
        return ShortlistDraft(draft, tokens) if tokens else draft
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        raise TrainingError(
            f"{path.name} cannot be read ({str(error).splitlines()[0]}). "
            f"{FIT.format(name=source.name)}, or fetch the file again"
        ) from None
    finally:
        device.clear_cache()


def _check_model(path: Path, card: Card, source: ModelSource) -> None:
    name = card.model.get("name", "another model")
    if card.model.get("sha256") != source.sha256:
        what = f"{name} ({card.quantisation}), not to {source.name}"
        if name == source.name:
            what = f"other weights of {name} ({card.quantisation})"
    elif card.quantisation != stored_as(source):
        what = f"{name} stored as {card.quantisation}, not as {stored_as(source)}"
    else:
        return
    raise TrainingError(
        f"{path.name} was fitted to {what}. {FIT.format(name=source.name)}"
    )
