"""What every greedy case does on many texts, without a clock: hardware-free figures.

Each text is written by the case on a model that counts the layers it runs, judged
against plain decoding, and compared with the answer where there is one. What a machine
makes of it is the timed pairs' business.

    counts = count_cases(subject, grid.cases, texts=200, num_tokens=64)
    counts[0]["evaluations"] / counts[0]["tokens"]      # layer evaluations a token
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generation_stream

from selfspec import decoding
from selfspec.decoding import Trace, lossless
from selfspec.study import arms
from selfspec.study.draft_grid import Case
from selfspec.study.errors import StudyError
from selfspec.study.layer_count import counting


def count_cases(
    model,
    cases: Iterable[Case],
    prompts: Sequence[Sequence[int]],
    *,
    num_tokens: int,
    eos: frozenset[int] = frozenset(),
    answers: Sequence[Sequence[int]] = (),
) -> list[dict[str, Any]]:
    """One line a case that drafts greedily at a fixed length.

    Args:
        prompts: token ids of each text's prompt.
        num_tokens: most tokens emitted a text.
        answers: what each text should be, its end token included; () where unknown.

    Returns:
        draft, num_draft_tokens, texts, tokens, rounds, drafted, accepted, equal, ties,
        exact (texts that are the answer, None where unknown), evaluations and rows of
        the target's layers (layer_count.py), prefill left out, and layers (the
        model's). The first line is plain decoding, with the draft "plain".

    Raises:
        StudyError: a text that is not the target's own.
    """
    plain = [
        arms.plain(model, ids, num_tokens=num_tokens, eos=eos).tokens for ids in prompts
    ]
    num_layers = len(model.layers)
    tokens = sum(map(len, plain))
    lines = [
        {
            "draft": "plain",
            "num_draft_tokens": 0,
            "texts": len(prompts),
            "tokens": tokens,
            "rounds": tokens,
            "drafted": 0,
            "accepted": 0,
            "equal": len(prompts),
            "ties": 0,
            "exact": _exact(plain, answers),
            "evaluations": float(num_layers * tokens),
            "rows": float(num_layers * tokens),
            "layers": num_layers,
        }
    ]
    counted, count = counting(model)
    for case in cases:
        if case.is_auto or case.temperature:
            continue
        own = [c for c in lines if (c["draft"], c["num_draft_tokens"]) == _key(case)]
        if own:
            continue
        written, trace = [], Trace()
        _write(counted, case, prompts[0], 2, frozenset(), Trace())  # checks the model
        count.reset()
        for ids in prompts:
            written.append(_write(counted, case, ids, num_tokens, eos, trace))
        verdicts = [
            _judge(model, ids, text, baseline, case)
            for ids, text, baseline in zip(prompts, written, plain, strict=True)
        ]
        longer = [ids for ids in prompts if len(ids) > 1]  # they were prefilled
        lines.append(
            {
                "draft": case.label,
                "num_draft_tokens": case.num_draft_tokens,
                "texts": len(prompts),
                "tokens": sum(map(len, written)),
                "rounds": len(trace.rounds),
                "drafted": trace.drafted,
                "accepted": trace.accepted,
                "equal": sum(v.word == "equal" for v in verdicts),
                "ties": sum(v.ties for v in verdicts),
                "exact": _exact(written, answers),
                "evaluations": count.evaluations - num_layers * len(longer),
                "rows": count.rows - num_layers * sum(len(ids) - 1 for ids in longer),
                "layers": num_layers,
            }
        )
    return lines


def draft_seconds(
    model, case: Case, prompts: Sequence[Sequence[int]], num_tokens: int
) -> float:
    """Seconds of one draft step on these texts, the device waited for; NaN if none.

    For drafts whose steps cost what the text makes of them, so that no profile of
    blocks can say it.
    """
    trace = Trace()
    for ids in prompts:
        _write(model, case, ids, num_tokens, frozenset(), trace, time_phases=True)
    return trace.seconds_drafting / trace.drafted if trace.drafted else float("nan")


def _key(case: Case) -> tuple[str, int | str]:
    return case.label, case.num_draft_tokens


def _write(model, case, ids, num_tokens, eos, trace: Trace, **options) -> list[int]:
    tokens: list[int] = []
    steps = decoding.generate_step(
        mx.array(ids),
        model,
        draft=case.draft,
        num_draft_tokens=case.num_draft_tokens,
        max_tokens=num_tokens,
        trace=trace,
        **options,
    )
    with closing(steps):
        for token, _, _ in steps:
            tokens.append(int(token))
            if tokens[-1] in eos:
                break
    mx.synchronize(generation_stream)
    return tokens


def _judge(model, ids, text, baseline, case: Case) -> lossless.Verdict:
    verdict = lossless.check(
        model,
        ids,
        text,
        baseline=baseline,
        tie_bound=0.0
        if list(text) == list(baseline)
        else lossless.tie_bound(model, ids),
    )
    if not verdict.lossless:
        raise StudyError(
            f"{case.name} draft tokens: token {verdict.position} of a counted text is "
            "not the target's own. Way out: report it with the model's name"
        )
    return verdict


def _exact(written: Sequence, answers: Sequence) -> int | None:
    if not answers:
        return None
    return sum(
        list(text) == list(answer)
        for text, answer in zip(written, answers, strict=True)
    )
