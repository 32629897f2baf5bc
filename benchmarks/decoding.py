"""What the decoding engine costs: overhead, first token, plain decoding, memory.

Regime: one prompt at a time, greedy, real text, warm caches of the machine, prefill and
decode apart; the BLAS thread count at which plain decoding is fastest, the same in both
arms; pairs run back to back in shuffled order, the median of the pair ratios is shown.
Decoding seconds are those of N tokens less those of one token, for every engine alike.

    python benchmarks/decoding.py --model smollm2-135m --tokens 48 --pairs 6

Prints a table for people, then one JSON line for programs.
"""

import argparse
import json
import random
import time
from statistics import median

import selfspec
from selfspec import blas

# isort: split
import mlx.core as mx
from mlx_lm.generate import generate_step as mlx_lm_step
from mlx_lm.generate import generation_stream, speculative_generate_step
from mlx_lm.models.cache import make_prompt_cache

from selfspec.costs import choose_threads
from selfspec.decoding import (
    ExitDraft,
    ShortlistDraft,
    SkipDraft,
    Trace,
    generate_step,
    shorter_list_model,
)
from selfspec.decoding.acceptance import Greedy
from selfspec.decoding.binding import bind
from selfspec.decoding.caches import Caches
from selfspec.decoding.drafting import Target
from selfspec.models import device, find_stack

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


def seconds(steps) -> float:
    """Run a generator to its end."""
    device.synchronize()
    started = time.perf_counter()
    for _ in steps:
        pass
    device.synchronize()
    return time.perf_counter() - started


def prompts(tokenizer, count: int, length: int) -> list[list[int]]:
    """Windows of real text, each starting at another sentence."""
    ids = tokenizer.encode(TEXT)
    while len(ids) < 2 * length + count:
        ids = ids + tokenizer.encode(" " + TEXT)
    stride = max(1, len(tokenizer.encode(TEXT)) // count)
    return [ids[i * stride : i * stride + length] for i in range(count)]


def paired(arms: dict, cases: list, rng: random.Random) -> dict[str, list[float]]:
    """Seconds of every arm on every case; arms back to back, in shuffled order."""
    out = {name: [] for name in arms}
    for name in arms:  # warm up
        arms[name](cases[0])
    for case in cases:
        for name in rng.sample(list(arms), len(arms)):
            out[name].append(arms[name](case))
    return out


def ratio(times: dict, over: str, under: str) -> float:
    return median(a / b for a, b in zip(times[over], times[under], strict=True))


def profile(model, prompt, draft, num_draft_tokens, repeats) -> tuple[float, float]:
    """c and v(D + 1) of a draft, in plain steps, measured before any round is timed."""
    caches = Caches(make_prompt_cache(model))
    target = Target(model, caches, stack=find_stack(model))
    rule, rows = Greedy(), {"step": [], "draft": [], "verify": []}
    with mx.stream(generation_stream):
        target.logits(mx.array(prompt[:-1], mx.uint32))
        caches.evaluate()
        drafter = bind(draft, target)
        for _ in range(repeats + 1):
            steps = generate_step(prompt[-1:], model, prompt_cache=caches.entries)
            next(steps)  # plain decoding is pipelined: time it in its stride
            started = time.perf_counter()
            for _ in range(4):
                next(steps)
            rows["step"].append((time.perf_counter() - started) / 4)
            steps.close()
            caches.roll_back(len(prompt) - 1)
            started = time.perf_counter()
            proposal = drafter.propose(prompt, num_draft_tokens, rule)
            mx.eval(proposal.tokens)
            drafted = time.perf_counter()
            logits = drafter.verify(prompt, proposal.tokens)
            mx.eval(rule.accept(proposal.tokens, None, logits, None))
            rows["verify"].append(time.perf_counter() - drafted)
            rows["draft"].append((drafted - started) / num_draft_tokens)
            caches.roll_back(len(prompt) - 1)
    step = median(rows["step"][1:])
    return median(rows["draft"][1:]) / step, median(rows["verify"][1:]) / step


def speedup_of(model, cases, draft, args, rng) -> dict:
    """Measured S beside (1 + A) / (cD + v) from the profile."""
    cost, verify = profile(model, cases[0], draft, args.draft_tokens, args.pairs)
    traces = []

    def decode(prompt, **options):
        trace = Trace()
        whole = seconds(
            generate_step(prompt, model, max_tokens=args.tokens, trace=trace, **options)
        )
        if options:
            traces.append(trace)
        return whole - trace.seconds_prefill

    arms = {
        "plain": decode,
        "draft": lambda p: decode(p, draft=draft, num_draft_tokens=args.draft_tokens),
    }
    times = paired(arms, cases, rng)
    rounds = [r for t in traces[1:] for r in t.rounds]
    accepted = sum(r.accepted for r in rounds) / len(rounds)
    drafted = sum(r.drafted for r in rounds) / len(rounds)
    predicted = (1 + accepted) / (cost * drafted + verify)
    measured = ratio(times, "plain", "draft")
    return {
        "cost_ratio": cost,
        "verify_ratio": verify,
        "acceptance_rate": accepted / drafted,
        "tokens_per_round": 1 + accepted,
        "speedup": measured,
        "predicted": predicted,
        "measured_over_predicted": measured / predicted,
    }


def against_mlx_lm(model, tokenizer, args, rng) -> dict:
    """Plain decoding, first token and decoding with the same skip set."""
    short = prompts(tokenizer, args.pairs, 64)
    long = prompts(tokenizer, args.pairs, args.prompt_tokens)
    layers = find_stack(model).num_layers
    draft = SkipDraft.middle(layers, args.skip)
    shorter = shorter_list_model(model, draft)

    def own(prompt, count, **options):
        return seconds(generate_step(prompt, model, max_tokens=count, **options))

    def theirs(prompt, count):
        return seconds(mlx_lm_step(mx.array(prompt), model, max_tokens=count))

    def post(prompt, count):
        return seconds(
            speculative_generate_step(
                mx.array(prompt),
                model,
                shorter,
                max_tokens=count,
                num_draft_tokens=args.draft_tokens,
            )
        )

    def skip(prompt, count):
        return own(prompt, count, draft=draft, num_draft_tokens=args.draft_tokens)

    engines = {"own": own, "mlx_lm": theirs, "skip": skip, "post": post}
    decode = paired(
        {
            name: lambda p, run=run: run(p, args.tokens) - run(p, 1)
            for name, run in engines.items()
        },
        short,
        rng,
    )
    first = paired(
        {name: lambda p, run=engines[name]: run(p, 1) for name in ("skip", "post")},
        long,
        rng,
    )
    return {
        "plain_speed_over_mlx_lm": ratio(decode, "mlx_lm", "own"),
        "first_token_seconds_over_mlx_lm_speculative": ratio(first, "skip", "post"),
        "decode_speed_over_mlx_lm_speculative": ratio(decode, "post", "skip"),
        "one_cache_speedup": ratio(decode, "mlx_lm", "skip"),
        "two_caches_speedup": ratio(decode, "mlx_lm", "post"),
    }


def extra_memory(model, prompt, drafts, tokens) -> dict:
    """Peak memory of a generation over that of plain decoding."""

    def peak(draft):
        device.clear_cache()
        device.reset_peak_memory()
        seconds(generate_step(prompt, model, draft=draft, max_tokens=tokens))
        return device.peak_memory()

    for draft in drafts.values():  # the self-test's own memory does not count
        peak(draft)
    plain = peak(None)
    return {name: peak(draft) / plain - 1 for name, draft in drafts.items()}


def graph_seconds(model, prompt) -> float:
    """Host seconds to build one step's graph: the most that overlapping could hide."""
    entries = make_prompt_cache(model)
    times = []
    for _ in range(5):
        started = time.perf_counter()
        model(mx.array([prompt[-1:]]), cache=entries)
        times.append(time.perf_counter() - started)
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tokens", type=int, default=48, help="decoded a run")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--draft-tokens", type=int, default=2)
    parser.add_argument("--skip", type=float, default=0.1, help="fraction of layers")
    parser.add_argument("--prompt-tokens", type=int, default=512, help="first token")
    parser.add_argument("--threads", type=int, default=0, help="BLAS; 0 measures")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    loaded = selfspec.load(args.model)
    model, rng = loaded.model, random.Random(args.seed)
    cases = prompts(loaded.tokenizer, args.pairs, 64)
    if args.threads:
        blas.set_threads(args.threads)
    else:
        choose_threads(model, context=cases[0])
    layers = find_stack(model).num_layers
    vocab = model(mx.array([[0]])).shape[-1]
    middle = SkipDraft.middle(layers, args.skip)
    drafts = {
        "skip": middle,
        "skip, prefix reused": SkipDraft(middle.attention, middle.mlp, True),
        "exit": ExitDraft(layers // 2),
        "exit, nothing reused": ExitDraft(layers // 2, reuse=False),
        "shortlist": ShortlistDraft(SkipDraft(), range(min(16384, vocab))),
    }
    result = {
        "benchmark": "decoding",
        "model": loaded.source.name,
        "device": device.kind(),
        "blas": blas.info(),
        "tokens": args.tokens,
        "pairs": args.pairs,
        "num_draft_tokens": args.draft_tokens,
        "drafts": {
            name: speedup_of(model, cases, draft, args, rng)
            for name, draft in drafts.items()
        },
        "against_mlx_lm": against_mlx_lm(model, loaded.tokenizer, args, rng),
        "extra_memory": extra_memory(model, cases[0], drafts, args.tokens),
        "graph_seconds": graph_seconds(model, cases[0]),
    }
    print(f"{result['model']} on {result['device']}, {result['blas']}")
    for name, row in result["drafts"].items():
        print(
            f"{name:22} c {row['cost_ratio']:.2f}  v {row['verify_ratio']:.2f}  "
            f"A/D {row['acceptance_rate']:.2f}  S {row['speedup']:.2f}  "
            f"S/predicted {row['measured_over_predicted']:.3f}  "
            f"extra memory {result['extra_memory'][name]:+.1%}"
        )
    for name, value in result["against_mlx_lm"].items():
        print(f"{name:45} {value:.3f}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
