"""Fit an exit of the reader's own model, within the minutes and the disk they give.

First what every choice must be accepted on this machine, then text that the model
writes itself, then the training of the bridge and nothing else. Every part is kept as
it is made; the same command goes on where it stopped. The bridge and its card are
written to weights/bridges/<model>.safetensors.

    done = fit_model("smollm2-135m", minutes=30, root=root)
    done.path, done.card.acceptance
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx

from selfspec import models
from selfspec.costs.profiling import BUDGET
from selfspec.decoding import frequent_tokens
from selfspec.models import device
from selfspec.models.blocks import find_stack
from selfspec.models.tokenizer import around_the_user
from selfspec.study import provenance
from selfspec.study.known_costs import machine_profile
from selfspec.study.prompt_set import load_prompts, read_prompts
from selfspec.study.results import RESULTS, write_atomic
from selfspec.study.trained import WEIGHTS
from selfspec.training import bridge_choice, bridge_fit, bridge_text
from selfspec.training.bridge_choice import Option
from selfspec.training.bridge_data import Shards
from selfspec.training.bridge_file import Card, save_bridge
from selfspec.training.bridge_fit import FitSettings, Fitted
from selfspec.training.bridge_text import Reading
from selfspec.training.errors import TrainingError

BRIDGES = WEIGHTS / "bridges"
WORK = ".work"
BATCH = 16  # texts written at the same time
ANSWER, HELD_OUT_ANSWER = 128, 96  # most tokens
WARM = 0.7  # temperature of every other shard; the rest is greedy, as most use is
HELD_OUT = 6  # one prompt in so many teaches nothing
WRITING = 0.5  # share of the time in which text is written
TRAINING = 0.42  # and in which it is learnt; the rest looks at held-out text
EPOCHS = 16  # at most: more of them and a small text is learnt by heart
SHORTLIST = 8192  # tokens, at most a quarter of the vocabulary
DISK_MB = 1024


@dataclass(frozen=True)
class FitRun:
    """What came of it: where the bridge is, its card, the fit."""

    path: Path
    card: Card
    fitted: Fitted


def fit_model(
    model: str,
    *,
    minutes: float,
    root: Path,
    data: str = "",
    exit_layer: int | None = None,
    kind: str | None = None,
    loss: str = "kl",
    disk_mb: int = DISK_MB,
    batch: int | None = None,
    answer: int = ANSWER,
    seed: int = 0,
    out: Path | None = None,
    settings: FitSettings | None = None,
    budget: float = BUDGET,
    say: Callable[[str], None] = print,
) -> FitRun:
    """Choose, write, fit; or go on.

    Args:
        minutes: for text and training together, over all sittings.
        data: the reader's own prompts beside the committed ones.
        exit_layer, kind: in the place of the choice from costs.
        disk_mb: most that the streams of the text may take.
        batch, answer: texts at a time, and most tokens of an answer; default, BATCH
            and ANSWER.
        out: of the bridge; default, weights/bridges/<model>.safetensors below `root`.
        settings: of the training, in the place of what the minutes allow.
        budget: seconds in which the costs are measured.

    Raises:
        ModelError, TrainingError, StudyError, PromptError: one line each.
    """
    if not minutes > 0:
        raise TrainingError(f"minutes must be above 0, got {minutes}. Way out: 30")
    batch, answer = batch or BATCH, answer or ANSWER
    prompts = [*load_prompts("calibration"), *(read_prompts(data) if data else [])]
    loaded = models.load(model)
    stack = find_stack(loaded.model)
    profile = machine_profile(
        loaded, budget=budget, told=lambda why: say(f"measuring costs ({why})")
    )
    chosen = _choose(stack, profile, exit_layer, kind, say)
    teach = [p for i, p in enumerate(prompts) if (i + 1) % HELD_OUT]
    hold = [p for i, p in enumerate(prompts) if not (i + 1) % HELD_OUT] or teach[-1:]
    ids, held = (  # of about one length together: padding is read too
        sorted((models.render_prompt(loaded.tokenizer, p.text) for p in group), key=len)
        for group in (teach, hold)
    )
    about = {
        "model": loaded.source.sha256,
        "exit_layer": chosen.exit_layer,
        "data": Path(data).name if data else "",
        "batch": batch,
        "answer": answer,
        "seed": seed,
    }
    machine = provenance.machine_slug(provenance.machine())
    work = root / RESULTS / machine / loaded.source.slug / WORK
    work = work / f"fit-exit-{chosen.exit_layer}-{chosen.kind}-{loss}-{seed}"
    writer = _Writer(loaded, stack, chosen.exit_layer, batch, answer, seed)
    held_out = writer.held_out(work / "held-out", about, held)
    shards = Shards(work / "text", about)
    writer.fill(shards, ids, WRITING * 60 * minutes, disk_mb * 2**20, say)
    readings = shards.readings()
    tokens = _shortlist(readings, stack)
    if settings is None:
        settings = _planned(
            work / "plan.json",
            stack,
            readings,
            tokens,
            FitSettings(chosen.exit_layer, chosen.kind, loss, seed=seed),
            minutes,
        )
    say(
        f"{settings.steps} steps on {shards.tokens} tokens of {len(readings)} texts, "
        f"{len(held_out)} texts held out"
    )
    fitted = bridge_fit.fit(
        stack,
        readings,
        held_out,
        settings,
        work,
        tokens=tokens,
        about={**about, "text": shards.digest()},
        told=lambda row: say(_progress(row, settings)),
    )
    path = out or root / BRIDGES / f"{loaded.source.slug}.safetensors"
    card = save_bridge(
        fitted.draft,
        path,
        loaded.source,
        data={
            "tokens": shards.tokens,
            "texts": len(readings),
            "held_out_texts": len(held_out),
            "own_prompts": Path(data).name if data else "",
            "writing_seconds": round(shards.seconds, 1),
            "training_seconds": fitted.curve[-1]["seconds"],
            "bytes": shards.nbytes,
            "machine": machine,
        },
        acceptance=fitted.best["positions"],
        settings={**settings.to_json(), "needs": _needs(chosen)},
        curve=fitted.curve,
        date=provenance.now(),
    )
    return FitRun(path, card, fitted)


def _choose(stack, profile, exit_layer, kind, say) -> Option:
    """The exit and the bridge; says what each choice needs first."""
    size = _shortlist_size(stack)
    options = bridge_choice.choices(stack, profile, shortlist=size)
    say(f"per-token acceptance that each exit needs here, head of {size} tokens:")
    for option in options:
        say(bridge_choice.in_words(option))
    if exit_layer is not None or kind is not None:
        best = bridge_choice.choose(options)
        asked = exit_layer or best.exit_layer, kind or best.kind
        if not 1 <= asked[0] < stack.num_layers:
            raise TrainingError(
                f"--exit-layer must be from 1 to {stack.num_layers - 1}, got {asked[0]}. "
                "Way out: leave it out"
            )
        [chosen] = bridge_choice.choices(
            stack, profile, shortlist=size, exits=asked[:1], kinds=asked[1:]
        )
        say(f"as asked, {bridge_choice.in_words(chosen)}")
        return chosen
    chosen = bridge_choice.choose(options)
    say(f"chosen: {bridge_choice.in_words(chosen)}")
    return chosen


class _Writer:
    """Text of the target, in shards that are functions of their number."""

    def __init__(self, loaded, stack, exit_layer, batch, answer, seed):
        self.stack, self.exit_layer = stack, exit_layer
        self.batch, self.answer, self.seed = batch, answer, seed
        self.eos = frozenset(loaded.tokenizer.eos_token_ids)
        self.around = around_the_user(loaded.tokenizer)

    def held_out(self, folder: Path, about: dict, ids: Sequence) -> list[Reading]:
        shards = Shards(folder, {**about, "held out": True})
        if not shards.paths:
            began = time.perf_counter()
            readings = bridge_text.write(
                self.stack,
                ids,
                exit_layer=self.exit_layer,
                max_tokens=min(self.answer, HELD_OUT_ANSWER),
                eos=self.eos,
            )
            shards.add(readings, time.perf_counter() - began)
        return shards.readings()

    def fill(self, shards: Shards, ids, seconds: float, nbytes: int, say) -> None:
        """Write until the time is used or the next shard would not fit the disk."""
        while not shards.paths or (
            shards.seconds < seconds
            and shards.nbytes * (1 + 1 / len(shards.paths)) <= nbytes
        ):
            began = time.perf_counter()
            readings = self.shard(len(shards.paths), ids)
            shards.add(readings, time.perf_counter() - began)
            device.clear_cache()
            say(
                f"written {shards.tokens} tokens in {shards.seconds:.0f} s, "
                f"{shards.nbytes / 2**20:.0f} MB"
            )

    def shard(self, number: int, ids: Sequence[Sequence[int]]) -> list[Reading]:
        """The prompts first, in turn; then what the model asks itself."""
        own = ids[number * self.batch : (number + 1) * self.batch]
        seed = 1000 * self.seed + number
        if len(own) < self.batch:
            before, after = self.around
            asked = bridge_text.ask(
                self.stack,
                before,
                after,
                count=self.batch - len(own),
                seed=seed,
                eos=self.eos,
            )
            own = [*own, *asked]
        return bridge_text.write(
            self.stack,
            own,
            exit_layer=self.exit_layer,
            max_tokens=self.answer,
            eos=self.eos,
            temperature=WARM if number % 2 else 0.0,
            seed=seed,
        )


def _vocab_size(stack) -> int:
    return stack.model(mx.array([[0]])).shape[-1]  # never run


def _shortlist_size(stack) -> int:
    return max(1, min(SHORTLIST, _vocab_size(stack) // 4))


def _shortlist(readings: Sequence[Reading], stack) -> tuple[int, ...]:
    """The tokens most frequent in the target's own text."""
    text = [token for r in readings for token in r.ids]
    return frequent_tokens(text, _shortlist_size(stack), _vocab_size(stack))


def _planned(
    path: Path, stack, readings, tokens, settings: FitSettings, minutes: float
) -> FitSettings:
    """As many steps as the minutes allow; decided once, so that a resumed fit agrees."""
    if path.exists():
        return FitSettings(**json.loads(path.read_text(encoding="utf-8")))
    windows = sum(-(-(len(r.ids) - 1) // settings.window) for r in readings)
    settings = replace(settings, batch=min(settings.batch, windows))
    seconds = bridge_fit.seconds_a_step(stack, readings, settings, tokens)
    most = EPOCHS * max(1, windows // settings.batch)
    steps = int(max(1, min(most, TRAINING * 60 * minutes / seconds)))
    settings = replace(
        settings,
        steps=steps,
        warmup=min(settings.warmup, steps // 10 + 1),
        evaluate_every=max(1, steps // 24),
    )
    write_atomic(path, json.dumps(settings.to_json()))
    return settings


def _progress(row: dict[str, Any], settings: FitSettings) -> str:
    places = ", ".join(f"{rate:.0%}" for rate in row["positions"])
    return (
        f"step {row['step']} of {settings.steps}: held-out loss "
        f"{row['held_out_loss']:.3f}, acceptance {row['acceptance']:.0%} of "
        f"{row['num_draft_tokens']} a round (by position {places})"
    )


def _needs(option: Option) -> dict[str, float]:
    return {
        "cost_ratio": round(option.cost_ratio, 4),
        "break_even": round(option.break_even, 4),
        "goal": bridge_choice.GOAL,
        "needed": round(option.needed, 4),
    }
