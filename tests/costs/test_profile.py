"""A profile's predictions are the sums of its blocks, and JSON keeps all of it."""

import json

import numpy as np
import pytest

from selfspec.costs import BlockSeconds, CostProfile, Sample, fit_blocks
from selfspec.decoding import ExitDraft, LookupDraft, ShortlistDraft, SkipDraft
from tests.costs.synthetic import BLOCKS, LAYERS, VOCAB, profile, whole

SETS = [  # running attention, MLP, layers, head
    (6, 6, 6, 1.0),
    (6, 0, 6, 1.0),
    (0, 6, 6, 1.0),
    (0, 0, 0, 1.0),
    (0, 0, 0, 0.125),
    (3, 3, 3, 1.0),
]


def samples(noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    out = []
    for attention, mlp, layer, head in SETS:
        running = dict(attention=attention, mlp=mlp, layer=layer, head=head, rest=1)
        for rows in (1, 2, 4, 8, 16):
            for context in (128, 1024):
                for waits in (0.0, 1.0):
                    seconds = sum(
                        count * BLOCKS[kind].seconds(rows, context, waits)
                        for kind, count in running.items()
                    )
                    seconds *= 1 + noise * rng.standard_normal()
                    out.append(Sample(running, rows, context, seconds, waits))
    return out


def test_the_fit_finds_the_costs_it_was_made_from():
    blocks, residuals = fit_blocks(samples())
    assert residuals.largest < 1e-6
    for kind, truth in BLOCKS.items():
        for rows, context in ((1, 128), (3, 500), (16, 2000)):
            found = blocks[kind].seconds(rows, context, 1.0)
            assert found == pytest.approx(truth.seconds(rows, context, 1.0), rel=1e-4)


def test_two_percent_of_noise_shows_in_the_residuals_and_hardly_in_whole_passes():
    blocks, residuals = fit_blocks(samples(noise=0.02))
    assert 0.005 < residuals.median < 0.03
    one = [LAYERS * blocks[k].seconds(1, 512) for k in ("attention", "mlp", "layer")]
    total = sum(one) + blocks["head"].seconds(1, 512) + blocks["rest"].seconds(1, 512)
    assert total == pytest.approx(whole(1, 512), rel=0.03)


def test_a_sixth_of_the_probes_hit_by_another_program_do_not_bend_the_fit():
    hit = [
        Sample(s.running, s.rows, s.context, s.seconds * (2 if i % 6 == 0 else 1), w)
        for i, s in enumerate(samples())
        for w in [s.waits]
    ]
    blocks, residuals = fit_blocks(hit)
    assert residuals.largest == pytest.approx(0.5, abs=0.05)
    for kind in ("attention", "mlp", "head"):
        truth = BLOCKS[kind].seconds(1, 512)
        assert blocks[kind].seconds(1, 512) == pytest.approx(truth, rel=0.03)


def test_no_fitted_cost_is_negative_whatever_the_noise():
    for seed in range(5):
        blocks, _ = fit_blocks(samples(noise=0.3, seed=seed))
        assert all(min(vars(block).values()) >= 0 for block in blocks.values())


def test_a_model_that_does_not_fit_shows_in_the_residuals():
    bent = [
        Sample(s.running, s.rows, s.context, s.seconds * (2 if s.rows == 4 else 1))
        for s in samples()
    ]
    assert fit_blocks(bent)[1].largest > 0.2


@pytest.mark.parametrize("wrong", [[], [Sample({"rest": 1}, 1, 1, 0.0)]])
def test_samples_without_time_are_refused(wrong):
    with pytest.raises(ValueError, match="samples"):
        fit_blocks(wrong)


def test_leaving_nothing_out_costs_a_step_and_its_share_of_waiting():
    found = profile().cost_ratio(SkipDraft(), num_draft_tokens=4)
    assert found == pytest.approx(whole(1, 256, 1 / 4) / whole(1, 256))


def test_a_skip_sets_cost_is_the_sum_of_what_runs():
    draft = SkipDraft(attention={1, 2, 3}, mlp={3})
    at = {k: b.seconds(1, 900, 1 / 3) for k, b in BLOCKS.items()}
    seconds = 3 * at["attention"] + 5 * at["mlp"] + 5 * at["layer"]
    seconds += at["head"] + at["rest"]
    found = profile().cost_ratio(draft, context=900)
    assert found == pytest.approx(seconds / whole(1, 900))


def test_an_exit_costs_as_much_as_skipping_every_later_layer():
    late = frozenset(range(2, LAYERS))
    skip = SkipDraft(attention=late, mlp=late)
    assert profile().cost_ratio(ExitDraft(2)) == profile().cost_ratio(skip)


def test_a_shortlist_saves_its_share_of_the_head():
    draft = SkipDraft(attention={0})
    short = ShortlistDraft(draft, tuple(range(VOCAB // 2)))
    saved = profile().cost_ratio(draft) - profile().cost_ratio(short)
    assert saved == pytest.approx(BLOCKS["head"].fixed / 2 / whole(1, 256))


def test_kept_rows_save_the_first_layers_all_rows_but_one():
    every, context = profile(), 256
    saved = sum(
        BLOCKS[k].seconds(5, context) - BLOCKS[k].seconds(1, context)
        for k in ("attention", "mlp", "layer")
    )
    full = every.verify_ratio(5)
    assert every.draft_verify_ratio(ExitDraft(2, reuse=False), 5) == full
    kept = every.draft_verify_ratio(ExitDraft(2), 5)
    assert kept == pytest.approx(full - 2 * saved / whole(1, context))
    late = frozenset(range(2, 4))
    prefix = SkipDraft(late, late, reuse_prefix=True)
    assert every.draft_verify_ratio(prefix, 5) == pytest.approx(kept)


def test_verification_after_a_long_context_pays_for_every_row():
    found = profile().verify_ratio(8, context=2000)
    assert found == pytest.approx(whole(8, 2000, 1.0) / whole(1, 2000))
    assert found > profile().verify_ratio(8)


def test_where_a_step_goes_adds_up_to_the_step():
    parts = profile().where_a_step_goes(700)
    assert sum(parts.values()) == pytest.approx(whole(1, 700))
    assert set(parts) == {"attention", "mlp", "layer", "head", "rest"}


def test_costs_of_a_draft_are_what_the_rule_that_declines_takes():
    from selfspec.costs import DeclinePolicy

    draft = ExitDraft(2)
    policy = DeclinePolicy(draft, **profile().costs_of(draft, context=512))
    assert len(policy.costs) == 16  # no draft, and 1 to 15 tokens
    assert policy.choose().draft is draft


@pytest.mark.parametrize(
    ("draft", "error"),
    [
        (LookupDraft(), TypeError),
        (SkipDraft(mlp={LAYERS}), ValueError),
        (ExitDraft(LAYERS), ValueError),
        (ShortlistDraft(SkipDraft(), tuple(range(VOCAB + 1))), ValueError),
    ],
)
def test_a_draft_of_another_model_or_kind_is_refused(draft, error):
    with pytest.raises(error, match="Way out"):
        profile().cost_ratio(draft)


def test_json_keeps_everything():
    text = json.dumps(profile().to_json())
    assert CostProfile.from_json(json.loads(text)) == profile()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda v: v.update(colour="blue"),
        lambda v: v.pop("vocab_size"),
        lambda v: v["blocks"].pop("head"),
        lambda v: v["blocks"]["mlp"].update(colour=1.0),
        lambda v: v["blocks"]["mlp"].update(fixed=-1.0),
        lambda v: v["residuals"].pop("median"),
        lambda v: v.update(step_seconds=0.0),
        lambda v: v.update(step_seconds="soon"),
        lambda v: v.update(pass_seconds={}),
        lambda v: v.update(pass_seconds={"two": 1.0}),
        lambda v: v.update(blocks=None),
        lambda v: v.update(mlp=["mlp"]),
    ],
)
def test_json_with_unknown_missing_or_impossible_values_is_refused(spoil):
    values = json.loads(json.dumps(profile().to_json()))
    spoil(values)
    with pytest.raises(
        ValueError, match=r"CostProfile|BlockSeconds|Residual|block|int"
    ):
        CostProfile.from_json(values)


def test_seconds_of_a_block_are_never_negative_or_endless():
    with pytest.raises(ValueError, match="0 or more"):
        BlockSeconds(fixed=float("nan"))
