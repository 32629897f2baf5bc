"""Every exit scored in one pass, against the model cut off there and run by itself."""

import math

import mlx.core as mx
import numpy as np
import pytest

from selfspec.models.blocks import find_stack
from selfspec.study import exit_scores
from selfspec.study.exit_scores import Text, exit_logits, score_exits
from tests.decoding import families, reference

FAMILIES = ("llama", "gemma2", "granite")  # two scale or cap what the head says


def cut_off(model, num_layers):
    stack = find_stack(model)
    return stack.with_layers(stack.layers[:num_layers])


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return families.build(request.param)


def some_texts(count=5, seed=1):
    rng = np.random.default_rng(seed)
    return [
        Text(tuple(rng.integers(0, families.VOCAB, int(n)).tolist()), start=3)
        for n in rng.integers(6, 14, count)
    ]


def test_each_exit_says_what_the_cut_off_model_says(model):
    """No norm twice, none left out, and exit E means that E layers ran."""
    ids = mx.array([some_texts()[0].ids, some_texts()[0].ids])
    found = list(exit_logits(model, ids))
    assert len(found) == len(model.layers)
    for layers, logits in enumerate(found, start=1):
        expected = cut_off(model, layers)(ids)
        assert mx.abs(logits - expected).max().item() < 1e-4, layers
    worst = min(mx.abs(a - b).max().item() for a, b in zip(found, found[1:], strict=0))
    assert worst > 1e-2  # exits differ, so that a mix-up would be seen


def test_sums_are_those_of_one_text_after_the_other(model):
    """Shorter texts are padded in a batch; nothing of the padding may count."""
    texts = some_texts()
    together = score_exits(model, texts)
    alone = [score_exits(model, [text]) for text in texts]
    for layer, score in enumerate(together):
        parts = [one[layer] for one in alone]
        assert score.positions == sum(p.positions for p in parts)
        for name in ("exact", "agreed", "right", "texts"):
            assert getattr(score, name) == sum(getattr(p, name) for p in parts), name
        assert score.surprise == pytest.approx(sum(p.surprise for p in parts), rel=1e-5)


def test_perplexity_is_that_of_the_scored_tokens_only(model):
    [text] = some_texts(1)
    log_probs = reference.all_logits(model, text.ids)
    log_probs = log_probs - mx.logsumexp(log_probs, axis=-1, keepdims=True)
    rows = np.array(log_probs)[text.start - 1 : -1]
    wanted = rows[np.arange(len(rows)), list(text.ids[text.start :])]
    last = score_exits(model, [text])[-1]
    assert last.perplexity == pytest.approx(math.exp(-wanted.mean()), rel=1e-4)
    assert last.agreement == 1


@pytest.mark.parametrize("layers", [2, 4, 6])
def test_exact_match_is_what_early_exit_alone_would_write(layers):
    """Greedy decoding of the cut-off model, slow and obvious, gives the same verdict."""
    model = families.build("llama")
    short = cut_off(model, layers)
    prompts = [families.prompt("llama", 5, seed) for seed in range(4)]
    right = [(*p, *reference.greedy(short, p, 6)) for p in prompts]
    wrong = [(*ids[:-2], (ids[-2] + 1) % families.VOCAB, ids[-1]) for ids in right[:2]]
    texts = [Text(ids, start=5) for ids in [*right, *wrong]]
    score = score_exits(model, texts)[layers - 1]
    assert (score.exact, score.texts, score.exit_layer) == (4, 6, layers)


def test_a_token_is_settled_at_the_first_layer_after_which_it_never_changes(model):
    [text] = some_texts(1, seed=8)
    tops = [
        reference.all_logits(cut_off(model, layers), text.ids).argmax(axis=-1).tolist()
        for layers in range(1, len(model.layers) + 1)
    ]
    expected = []
    for position in range(text.start - 1, len(text.ids) - 1):
        said = [top[position] for top in tops]
        depth = len(said)
        while depth > 1 and said[depth - 2] == said[-1]:
            depth -= 1
        expected.append(depth)
    assert exit_scores.prediction_depths(model, text) == expected
    assert len(set(expected)) > 1


def test_many_texts_go_in_batches_that_fit(model, monkeypatch):
    texts = some_texts(7)
    whole = score_exits(model, texts)
    monkeypatch.setattr(exit_scores, "LOGITS", 1)  # one text at a time
    for one, other in zip(whole, score_exits(model, texts), strict=True):
        assert one.exact == other.exact
        assert one.surprise == pytest.approx(other.surprise, rel=1e-5)


def test_what_cannot_be_scored_is_refused(model):
    with pytest.raises(ValueError, match="at least one text"):
        score_exits(model, [])
    for start in (0, 3):
        with pytest.raises(ValueError, match="start must be from 1 to 2"):
            Text((1, 2, 3), start=start)
