"""A score says what the engine would have drafted: the judge is the engine itself."""

import math

import families
import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from selfspec.decoding import ExitDraft, LookupDraft, ShortlistDraft, SkipDraft
from selfspec.decoding.acceptance import Greedy
from selfspec.decoding.binding import bind
from selfspec.decoding.caches import Caches
from selfspec.decoding.drafting import Target
from selfspec.models import UnsupportedModelError, find_stack
from selfspec.selection import Scorer, Window, make_windows
from selfspec.selection.windows import overlap

DEPTH = 3
# llama; windows shorter than the text; sinks; parallel blocks; norms after blocks
FAMILIES = ("llama", "gemma3_text", "gpt_oss", "cohere2", "olmo3")
DRAFTS = {
    "blocks": SkipDraft(attention={0, 2}, mlp={2, 4}),
    "attention": SkipDraft(attention={3}),
    "exit": ExitDraft(4),
    "shortlist": ShortlistDraft(SkipDraft(mlp={1}), range(0, 96, 2)),
}


def windows_of(model, family, count=2, num_tokens=24):
    prompts = [families.prompt(family, 10, seed) for seed in range(count)]
    return make_windows(model, prompts, num_tokens=num_tokens)


def drafted_by_the_engine(model, draft, window) -> list[list[int]]:
    """What the engine drafts in a round that begins at each row of a window."""
    found = []
    for row in range(window.start - 1, len(window.tokens) - 1):
        caches = Caches(make_prompt_cache(model))
        if any(type(entry).__name__ == "RotatingKVCache" for entry in caches.entries):
            caches.widen()
        target = Target(model, caches, stack=find_stack(model))
        for token in window.tokens[:row]:
            target.logits(mx.array([token]))
        drafter = bind(draft, target)
        known = list(window.tokens[: row + 1])
        found.append(drafter.propose(known, DEPTH, Greedy()).tokens.tolist())
    return found


@pytest.fixture(scope="module", params=FAMILIES)
def scored(request):
    model = families.build(request.param)
    windows = windows_of(model, request.param)
    return model, windows, Scorer(model, windows)


@pytest.mark.parametrize("name", DRAFTS)
def test_every_position_is_drafted_as_the_engine_drafts_it(scored, name):
    model, windows, scorer = scored
    score = scorer.score(DRAFTS[name], depth=DEPTH)
    kept, tried, first = np.zeros(DEPTH, int), np.zeros(DEPTH, int), []
    for window in windows:
        for place, drafted in enumerate(
            drafted_by_the_engine(model, DRAFTS[name], window)
        ):
            rest = window.tokens[window.start + place :]
            first.append(drafted[0] == rest[0])
            for position, (ours, right) in enumerate(zip(drafted, rest, strict=False)):
                tried[position] += 1
                kept[position] += ours == right
                if ours != right:
                    break
    assert score.agreed.tolist() == first
    assert score.counts_at == tuple(tried)
    assert score.agreement_at == pytest.approx(tuple(kept / tried))
    assert 0 < score.agreement < 1, "a draft that is always right would prove little"


def test_leaving_nothing_out_agrees_everywhere_and_is_the_target(scored):
    _, _, scorer = scored
    score = scorer.score(SkipDraft(), depth=2)
    assert score.agreement == 1 and score.agreement_at == (1, 1)
    assert score.cosine_before_norm == pytest.approx(1, abs=1e-4)
    assert score.kl == pytest.approx(0, abs=1e-3)


def test_the_windows_of_a_score(scored):
    _, windows, scorer = scored
    score = scorer.score(DRAFTS["blocks"])
    assert (
        score.positions
        == scorer.num_positions
        == sum(len(w.generated) for w in windows)
    )
    assert np.bincount(score.window).tolist() == [len(w.generated) for w in windows]
    assert score.by_window().shape == (len(windows),)
    assert score.by_window()[1] == score.agreed[score.window == 1].mean()


@pytest.fixture(scope="module")
def llama():
    model = families.build("llama")
    return model, windows_of(model, "llama")


def test_windows_are_the_targets_own_text(llama):
    model, windows = llama
    for window in windows:
        logits = model(mx.array([window.tokens[:-1]]))[0]
        said = mx.argmax(logits, axis=-1).tolist()[window.start - 1 :]
        assert tuple(said) == window.generated


def test_a_window_ends_with_the_end_of_the_text(llama):
    model, windows = llama
    stop = windows[0].generated[5]
    first = windows[0].generated.index(stop)
    [short] = make_windows(
        model, [windows[0].tokens[: windows[0].start]], num_tokens=24, eos={stop}
    )
    assert short.generated == windows[0].generated[: first + 1]


def test_closeness_falls_with_what_is_left_out_and_kl_rises(llama):
    scorer = Scorer(*llama)
    little, much = (
        scorer.score(draft)
        for draft in (SkipDraft(mlp={5}), SkipDraft(range(1, 6), range(1, 6)))
    )
    assert little.cosine_before_norm > much.cosine_before_norm
    assert little.cosine_after_norm > much.cosine_after_norm
    assert 0 < little.kl < much.kl
    assert little.cosines.shape == (little.positions,)


def test_kl_is_that_of_the_two_distributions(llama):
    model, windows = llama
    draft = SkipDraft(mlp={5})  # the last MLP: what it reads is the target's
    score = Scorer(model, windows[:1]).score(draft)
    from selfspec.decoding.skip import skipping_layers

    stack = find_stack(model)
    tokens = mx.array([windows[0].tokens[:-1]])
    skipping = stack.with_layers(skipping_layers(stack, draft))
    rows = slice(windows[0].start - 1, None)
    target, other = (
        np.array(mx.softmax(m(tokens)[0, rows], axis=-1), np.float64)
        for m in (model, skipping)
    )
    expected = (target * np.log(target / other)).sum(axis=-1).mean()
    assert score.kl == pytest.approx(expected, rel=1e-3)


def test_a_shortlist_has_no_kl(llama):
    assert math.isnan(Scorer(*llama).score(DRAFTS["shortlist"]).kl)


def test_scores_do_not_depend_on_what_was_scored_before(llama):
    scorer = Scorer(*llama)
    first = scorer.score(DRAFTS["blocks"], depth=2)
    scorer.score(DRAFTS["exit"], depth=3)
    again = scorer.score(DRAFTS["blocks"], depth=2)
    assert again.agreed.tolist() == first.agreed.tolist()
    assert again.kl == first.kl


def test_scoring_leaves_the_model_as_it_was(llama):
    model, windows = llama
    before = model(mx.array([windows[0].tokens]))
    layers = [id(layer) for layer in model.layers]
    Scorer(model, windows).score(DRAFTS["blocks"], depth=2)
    assert [id(layer) for layer in model.layers] == layers
    assert mx.array_equal(model(mx.array([windows[0].tokens])), before)


def test_overlapping_sets_of_windows_are_found_out(llama):
    _, (one, two) = llama
    assert overlap([one], [two, one])
    assert not overlap([one], [two])


def test_refusals(llama):
    model, windows = llama
    scorer = Scorer(model, windows[:1])
    with pytest.raises(TypeError, match="not a LookupDraft"):
        scorer.score(LookupDraft())
    with pytest.raises(ValueError, match="leaves out layers"):
        scorer.score(SkipDraft(mlp={6}))
    with pytest.raises(ValueError, match="depth must be 1"):
        scorer.score(SkipDraft(), depth=0)
    with pytest.raises(ValueError, match="one or more windows"):
        Scorer(model, [])
    with pytest.raises(ValueError, match="a prompt and a generated token"):
        Window((1, 2), 2)
    with pytest.raises(ValueError, match="prompts of one or more"):
        make_windows(model, [[]], num_tokens=3)


def test_a_model_with_broken_weights_is_refused(llama):
    model = families.build("llama")
    layer = model.model.layers[2].mlp
    layer.down_proj.weight = mx.full(layer.down_proj.weight.shape, float("nan"))
    with pytest.raises((ValueError, UnsupportedModelError)):
        Scorer(model, [Window((1, 2, 3), 1)])
