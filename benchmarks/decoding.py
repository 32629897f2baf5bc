"""What the decoding engine costs: overhead, first token, plain decoding, memory.

Regime: one prompt at a time, greedy, real text, warm caches of the machine, prefill and
decode apart; the BLAS thread count at which plain decoding is fastest, the same in all
arms. Arms run back to back in shuffled order; every figure is the median over prompts
of ratios within one such block, with its 95 % interval. c and v come from the profile of
the model on this machine, measured before any round is timed. Decoding seconds are those
of N tokens less those of one token, or less the prefill, the same for every engine of a
comparison.

    python benchmarks/decoding.py --model smollm2-135m --tokens 48 --prompts 8
    python benchmarks/decoding.py --save      # keep it for the book, below results/

Prints a table for people, then one JSON line for programs.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import selfspec
from selfspec import blas

# isort: split
import mlx.core as mx
from mlx_lm.generate import generate_step as mlx_lm_step
from mlx_lm.generate import speculative_generate_step
from mlx_lm.models.cache import make_prompt_cache

from selfspec.costs.profiling import BUDGET
from selfspec.decoding import (
    ExitDraft,
    ShortlistDraft,
    SkipDraft,
    Trace,
    generate_step,
    shorter_list_model,
)
from selfspec.models import device, find_stack
from selfspec.study import engine_values, provenance, reference
from selfspec.study.known_costs import machine_profile
from selfspec.study.results import write_atomic
from selfspec.study.statistics import median_ratio

SHORTLIST = 16384
PLAIN_REPEATS = 4
FIRST_TOKEN_SKIPS = (0.1, 0.2, 0.3)
TEXT = """The canal was dug by hand between two winters, because the farmers of the
valley had no other season to spare. Each family was asked for one man and one spade;
the widow Harrow sent her daughter and was not refused. They began at the mill, where
the ground was soft, and by the first frost they had reached the chapel. Water was let
in on a Sunday, against the wish of the priest, and it ran as far as the orchard before
it sank into the gravel. So they lined the bed with clay, carried in baskets from the
river, and tried again. In the spring the barges came: salt, timber, letters, and once a
bear in a cage, which the children followed for two miles. Prices fell, the inn was
enlarged, and a clerk from the city counted everything twice. Old people said that the
valley had grown louder. Nobody proposed to fill the canal in again."""


def seconds(steps, tokens: list[int] | None = None) -> float:
    """Run a generator to its end; its tokens are put into `tokens`."""
    kept = [] if tokens is None else tokens
    device.synchronize()
    started = time.perf_counter()
    for token, *_ in steps:
        kept.append(token)
    device.synchronize()
    return time.perf_counter() - started


def windows(tokenizer, count: int, length: int) -> list[list[int]]:
    """Prompts: windows of real text, each starting at another sentence."""
    ids = tokenizer.encode(TEXT)
    while len(ids) < 2 * length + count:
        ids = ids + tokenizer.encode(" " + TEXT)
    stride = max(1, len(tokenizer.encode(TEXT)) // count)
    return [ids[i * stride : i * stride + length] for i in range(count)]


def blocks(
    arms: Mapping[str, Callable], prompts: Sequence, rng: random.Random
) -> list[dict[str, Any]]:
    """What every arm returns for every prompt; a block's arms run back to back."""
    for arm in arms.values():  # warm up
        arm(prompts[0])
    found = []
    for prompt in prompts:
        order = rng.sample(list(arms), len(arms))
        found.append({name: arms[name](prompt) for name in order})
    return found


def estimate(ratios) -> dict[str, float | None]:
    """Median and interval, as JSON holds them."""
    found = median_ratio(list(ratios))
    known = found.low == found.low
    return {
        "value": found.value,
        "low": found.low if known else None,
        "high": found.high if known else None,
    }


def drafts_against_plain(model, prompts, drafts, args, rng, profile) -> dict[str, dict]:
    """Each draft's measured S beside (1 + A) / (cD + v), prompt by prompt."""
    context = len(prompts[0]) + args.tokens // 2
    costs = {
        name: (
            profile.cost_ratio(draft, context, args.draft_tokens),
            profile.draft_verify_ratio(draft, args.draft_tokens + 1, context),
        )
        for name, draft in drafts.items()
    }

    def decode(prompt, **options) -> tuple[float, Trace, list[int]]:
        trace, tokens = Trace(), []
        steps = generate_step(
            prompt, model, max_tokens=args.tokens, trace=trace, **options
        )
        whole = seconds(steps, tokens)
        return whole - trace.seconds_prefill, trace, tokens

    def arm(draft):
        return lambda p: decode(p, draft=draft, num_draft_tokens=args.draft_tokens)

    found = blocks(
        {"plain": decode, **{name: arm(draft) for name, draft in drafts.items()}},
        prompts,
        rng,
    )
    out = {}
    for name, (cost, verify) in costs.items():
        speedups = [block["plain"][0] / block[name][0] for block in found]
        traces = [block[name][1] for block in found]
        rounds = [[(r.drafted, r.accepted) for r in trace.rounds] for trace in traces]
        # The sums of the identity, so that a last round cut short counts as it was.
        predicted = [
            sum(1 + a for _, a in text) / sum(cost * d + verify for d, _ in text)
            for text in rounds
        ]
        drafted = sum(d for text in rounds for d, _ in text)
        accepted = sum(a for text in rounds for _, a in text)
        out[name] = {
            "cost_ratio": cost,
            "verify_ratio": verify,
            "acceptance_rate": accepted / drafted,
            "texts_that_differ": sum(b["plain"][2] != b[name][2] for b in found),
            "speedup": estimate(speedups),
            "predicted": median(predicted),
            "measured_over_predicted": estimate(
                s / p for s, p in zip(speedups, predicted, strict=True)
            ),
        }
    return out


def reuse_of_prefix(model, prompts, skip, args, rng) -> dict:
    """Speed with the blocks before the first skipped one computed once, over without."""

    def run(draft):
        return lambda p: seconds(
            generate_step(
                p,
                model,
                draft=draft,
                num_draft_tokens=args.draft_tokens,
                max_tokens=args.tokens,
            )
        )

    kept = SkipDraft(skip.attention, skip.mlp, reuse_prefix=True)
    found = blocks({"again": run(skip), "kept": run(kept)}, prompts, rng)
    return estimate(block["again"] / block["kept"] for block in found)


def against_mlx_lm(model, short, long, args, rng) -> dict:
    """Plain decoding, first token and decoding, the same skip set in both engines."""
    layers = find_stack(model).num_layers

    def own(prompt, count, **options):
        return seconds(generate_step(prompt, model, max_tokens=count, **options))

    def theirs(prompt, count):
        return seconds(mlx_lm_step(mx.array(prompt), model, max_tokens=count))

    def skipping(fraction):
        """This engine and mlx-lm's with the same layers skipped."""
        draft = SkipDraft.middle(layers, fraction)
        shorter, length = shorter_list_model(model, draft), args.draft_tokens
        return {
            "one cache": lambda p, n: own(p, n, draft=draft, num_draft_tokens=length),
            "two caches": lambda p, n: seconds(
                speculative_generate_step(
                    mx.array(p), model, shorter, max_tokens=n, num_draft_tokens=length
                )
            ),
        }

    def decoding(engine):
        return lambda p: engine(p, args.tokens) - engine(p, 1)

    plain = {"own": decoding(own), "mlx-lm": decoding(theirs)}
    # near to 1, so it takes more than one pair a prompt to tell it from 1
    again = [prompt for prompt in short for _ in range(PLAIN_REPEATS)]
    ratios = [b["mlx-lm"] / b["own"] for b in blocks(plain, again, rng)]
    by_prompt = [
        mean(ratios[i : i + PLAIN_REPEATS])
        for i in range(0, len(ratios), PLAIN_REPEATS)
    ]
    engines = skipping(args.skip)
    found = blocks({n: decoding(e) for n, e in engines.items()}, short, rng)
    out = {
        "plain_speed": estimate(by_prompt),
        "decode_speed": estimate(b["two caches"] / b["one cache"] for b in found),
    }
    for fraction in FIRST_TOKEN_SKIPS:
        engines = skipping(fraction)
        arms = {n: (lambda p, e=e: e(p, 1)) for n, e in engines.items()}
        found = blocks(arms, long, rng)
        out[f"first_token_seconds_skip_{round(100 * fraction)}"] = estimate(
            b["one cache"] / b["two caches"] for b in found
        )
    return out


def extra_memory(model, prompt, drafts, tokens) -> dict[str, dict[str, float]]:
    """Peak memory of a generation over that of plain decoding, less 1.

    The head's rows that a shortlist copied are told apart, in bytes.
    """

    def peak(draft):
        trace = Trace()
        device.clear_cache()
        device.reset_peak_memory()
        seconds(
            generate_step(prompt, model, draft=draft, max_tokens=tokens, trace=trace)
        )
        return device.peak_memory() - trace.shortlist_bytes, trace.shortlist_bytes

    for draft in drafts.values():  # the self-test's own memory does not count
        peak(draft)
    plain, _ = peak(None)
    out = {}
    for name, draft in drafts.items():
        most, copied = peak(draft)
        out[name] = {"extra_memory": most / plain - 1, "shortlist_bytes": copied}
    return out


def graph_seconds(model, prompt) -> float:
    """Host seconds to build one step's graph: the most that overlapping could hide."""
    entries = make_prompt_cache(model)
    times = []
    for _ in range(5):
        started = time.perf_counter()
        model(mx.array([prompt[-1:]]), cache=entries)
        times.append(time.perf_counter() - started)
    return median(times)


def step_seconds(model, prompt) -> float:
    """Seconds of one plain step, in its stride."""
    stamps = []
    for _ in mlx_lm_step(mx.array(prompt), model, max_tokens=12):
        stamps.append(time.perf_counter())
    return median(b - a for a, b in zip(stamps, stamps[1:], strict=False))


def measure(loaded, args) -> dict[str, Any]:
    """Everything, with what it depends on."""
    model, rng = loaded.model, random.Random(args.seed)
    short = windows(loaded.tokenizer, args.prompts, 64)
    long = windows(loaded.tokenizer, args.prompts, args.prompt_tokens)
    profile = machine_profile(loaded, budget=args.profile_seconds)
    layers = find_stack(model).num_layers
    vocab = model(mx.array([[0]])).shape[-1]
    skip = SkipDraft.middle(layers, args.skip)
    drafts = {
        "skip": skip,
        "exit": ExitDraft(layers // 2),
        "exit, nothing reused": ExitDraft(layers // 2, reuse=False),
        "shortlist": ShortlistDraft(SkipDraft(), range(min(SHORTLIST, vocab))),
    }
    found = drafts_against_plain(model, short, drafts, args, rng, profile)
    for name, memory in extra_memory(model, short[0], drafts, args.tokens).items():
        found[name] |= memory
    return {
        "benchmark": "decoding",
        **provenance.collect(loaded.source, "python benchmarks/decoding.py --save"),
        "blas": blas.info(),
        "tokens": args.tokens,
        "prompts": args.prompts,
        "num_draft_tokens": args.draft_tokens,
        "skip_fraction": args.skip,
        "prompt_tokens": args.prompt_tokens,
        "drafts": found,
        "prefix_reuse_speed": reuse_of_prefix(model, short, skip, args, rng),
        "against_mlx_lm": against_mlx_lm(model, short, long, args, rng),
        "graph_seconds": graph_seconds(model, short[0]),
        "step_seconds": step_seconds(model, short[0]),
    }


def card(result: dict[str, Any]) -> str:
    """The figures for people."""

    def shown(found):
        if found["low"] is None:
            return f"{found['value']:.3f}"
        return f"{found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"

    lines = [
        f"{result['model']['name']}, {result['machine']['chip']}, {result['blas']}"
    ]
    for name, row in result["drafts"].items():
        lines.append(
            f"{name:22} c {row['cost_ratio']:.2f}  v {row['verify_ratio']:.2f}  "
            f"A/D {row['acceptance_rate']:.2f}  S {shown(row['speedup'])}  "
            f"S/predicted {shown(row['measured_over_predicted'])}  "
            f"memory {row['extra_memory']:+.1%}  "
            f"texts that differ {row['texts_that_differ']}"
        )
    others = {"prefix_reuse_speed": result["prefix_reuse_speed"]}
    for name, found in (others | result["against_mlx_lm"]).items():
        lines.append(f"{name:35} {shown(found)}")
    share = result["graph_seconds"] / result["step_seconds"]
    lines.append(f"building a graph takes {share:.1%} of a plain step")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tokens", type=int, default=48, help="decoded a run")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--draft-tokens", type=int, default=2)
    parser.add_argument("--skip", type=float, default=0.1, help="fraction of layers")
    parser.add_argument("--prompt-tokens", type=int, default=512, help="first token")
    parser.add_argument("--profile-seconds", type=float, default=BUDGET)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true", help="keep it below results/")
    args = parser.parse_args()
    loaded = selfspec.load(args.model)
    result = measure(loaded, args)
    print(card(result))
    text = json.dumps(result)
    print(text)
    if args.save:
        machine = provenance.machine_slug(result["machine"])
        folder = reference.find_root(Path(__file__).parent) / "results" / machine
        write_atomic(folder / loaded.source.slug / engine_values.FILE, text + "\n")


if __name__ == "__main__":
    main()
