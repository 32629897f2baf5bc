"""A score says what the engine would have drafted: the judge is the engine itself."""

import math

import families
import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from selfspec.decoding import ExitDraft, LookupDraft, ShortlistDraft, SkipDraft
from selfspec.decoding.acceptance import Greedy
from selfspec.decoding.binding import bind
from selfspec.decoding.caches import Caches
from selfspec.decoding.drafting import Target
from selfspec.decoding.skip import skipping_layers
from selfspec.models import UnsupportedModelError, find_stack
from selfspec.selection import Scorer, Window, make_windows
from selfspec.selection.passes import TargetText
from selfspec.selection.scores import head_rows

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
    caches = Caches(make_prompt_cache(model))
    if any(type(entry).__name__ == "RotatingKVCache" for entry in caches.entries):
        caches.widen()
    target = Target(model, caches, stack=find_stack(model))
    drafter = bind(draft, target)
    for row, token in enumerate(window.tokens[:-1]):
        if row >= window.start - 1:
            known = list(window.tokens[: row + 1])
            found.append(drafter.propose(known, DEPTH, Greedy()).tokens.tolist())
            caches.roll_back(row)
        mx.eval(target.logits(mx.array([token])))  # row by row, as decoding reads
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


LAST_MLP = SkipDraft(mlp={5})  # what is left of the model reads the target's own


def distributions(model, window, temperature=1.0):
    """The target's and those of LAST_MLP at each row, from passes without a cache."""
    stack = find_stack(model)
    tokens = mx.array([window.tokens[:-1]])
    skipping = stack.with_layers(skipping_layers(stack, LAST_MLP))
    rows = slice(window.start - 1, None)
    return (
        np.array(mx.softmax(m(tokens)[0, rows] / temperature, axis=-1), np.float64)
        for m in (model, skipping)
    )


def test_kl_is_that_of_the_two_distributions(llama):
    model, windows = llama
    score = Scorer(model, windows[:1]).score(LAST_MLP)
    target, other = distributions(model, windows[0])
    expected = (target * np.log(target / other)).sum(axis=-1).mean()
    assert score.kl == pytest.approx(expected, rel=1e-3)


def test_sampled_acceptance_is_what_both_rules_keep(llama):
    model, windows = llama
    scorer = Scorer(model, windows[:1])
    found = scorer.sampled_acceptance(LAST_MLP, temperature=0.7)
    target, other = distributions(model, windows[0], temperature=0.7)
    rejection = np.minimum(target, other).sum(axis=-1).mean()
    match = (target * other).sum(axis=-1).mean()
    assert found["rejection"] == pytest.approx(rejection, rel=1e-3)
    assert found["match"] == pytest.approx(match, rel=1e-3)
    assert found["match"] < found["rejection"] < 1

    # the draft samples among its shortlist, the target among everything
    tokens = tuple(range(0, 96, 2))
    found = scorer.sampled_acceptance(ShortlistDraft(LAST_MLP, tokens), 0.7)
    listed = other[:, ::2] / other[:, ::2].sum(axis=-1, keepdims=True)
    rejection = np.minimum(target[:, ::2], listed).sum(axis=-1).mean()
    assert found["rejection"] == pytest.approx(rejection, rel=1e-3)


def test_nothing_left_out_is_always_kept_by_rejection_but_not_by_the_match_rule(llama):
    found = Scorer(*llama).sampled_acceptance(SkipDraft(), temperature=0.7)
    assert found["rejection"] == pytest.approx(1, abs=1e-4)
    assert found["match"] < 0.99


def test_within_the_lemmas_cosine_no_direction_changes_the_token(llama):
    """Turned towards each other token's row as far as the lemma allows: never enough.

    Turned to where the token's logits are equal, the cosine is below what it asks for.
    """
    scorer = Scorer(*llama)
    asked = scorer.lemma_cosines()
    head = np.array(head_rows(scorer.model), np.float64)
    states = np.concatenate(
        [np.array(scorer.norm(text.last)[0], np.float64) for text in scorer.texts]
    )
    assert len(asked) == len(states) == scorer.num_positions
    assert np.mean(np.array(asked) > 0) > 0.9, "else nothing is turned below"
    for state, cosine in zip(states, asked, strict=True):
        length, top = np.linalg.norm(state), int(np.argmax(head @ state))
        along = state / length
        for other in set(range(len(head))) - {top}:
            apart = head[other] - head[top]
            across = apart - (apart @ along) * along
            across /= np.linalg.norm(across)
            allowed = max(cosine, -1.0)
            sine = np.sqrt(1 - allowed * allowed)
            turned = length * (allowed * along + sine * across)
            assert apart @ turned <= 1e-4 * length, (cosine, other)
            # apart @ turned = 0 at this angle
            flip = np.arctan2(-(apart @ along), apart @ across)
            assert np.cos(flip) <= allowed + 1e-5


def test_the_head_is_the_matrix_that_makes_the_logits(llama):
    model, windows = llama
    scorer = Scorer(model, windows[:1])
    [text] = scorer.texts
    logits = scorer.norm(text.last)[0] @ head_rows(model).T
    said = text.log_probs - text.log_probs[:, :1]
    assert mx.allclose(logits - logits[:, :1], said, rtol=1e-3, atol=1e-3)
    quantised = families.build("llama")
    nn.quantize(quantised, group_size=32, bits=8)
    assert mx.allclose(head_rows(quantised), head_rows(model), atol=0.1)


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


def test_refusals(llama):
    model, windows = llama
    scorer = Scorer(model, windows[:1])
    with pytest.raises(TypeError, match="not a LookupDraft"):
        scorer.score(LookupDraft())
    with pytest.raises(ValueError, match="leaves out layers"):
        scorer.score(SkipDraft(mlp={6}))
    with pytest.raises(ValueError, match="token 96, but the model has 96.*Way out"):
        scorer.score(ShortlistDraft(SkipDraft(), (5, 96)))
    for beyond in (6, 40):  # nothing would be left out, and all would be right
        with pytest.raises(ValueError, match="exit_layer must be from 1 to 5"):
            scorer.score(ExitDraft(beyond))
    with pytest.raises(ValueError, match="depth must be 1"):
        scorer.score(SkipDraft(), depth=0)
    with pytest.raises(ValueError, match="temperature must be above 0.*Way out"):
        scorer.sampled_acceptance(SkipDraft(), temperature=0)
    with pytest.raises(ValueError, match="one or more windows"):
        Scorer(model, [])
    foreign = Window((*windows[0].tokens[:-8], *[5] * 8), windows[0].start)
    with pytest.raises(ValueError, match="the target's own text at .* Way out"):
        Scorer(model, [foreign])


def test_a_model_with_broken_weights_is_refused(llama):
    model = families.build("llama")
    layer = model.model.layers[2].mlp
    layer.down_proj.weight = mx.full(layer.down_proj.weight.shape, float("nan"))
    with pytest.raises((ValueError, UnsupportedModelError)):
        Scorer(model, [Window((1, 2, 3), 1)])


def test_a_draft_whose_logits_are_no_numbers_is_refused(llama, monkeypatch):
    scorer = Scorer(*llama)
    draft = TargetText.draft

    def broken(self, layers, **options):
        logits, last = draft(self, layers, **options)
        return logits * float("nan"), last

    monkeypatch.setattr(TargetText, "draft", broken)
    with pytest.raises(ValueError, match="logits are not numbers.*Way out"):
        scorer.score(DRAFTS["blocks"])
