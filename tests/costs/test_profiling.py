"""Measuring a profile: every probe from the same context, and the truth found again.

The clock is replaced by a machine with known costs where accuracy is asked for.
"""

import random

import mlx.nn as nn
import pytest

import selfspec
from selfspec.costs import check_profile, measure_profile, profiling
from selfspec.costs.profiling import PLAIN, Probe
from selfspec.decoding import ExitDraft, ShortlistDraft, SkipDraft
from selfspec.models import UnsupportedModelError
from tests.costs.synthetic import BLOCKS, LAYERS, VOCAB, profile, whole
from tests.tiny import save_tiny_model

SMALL = dict(reference=40, contexts=(20, 90), budget=0)


def test_a_real_profile_has_every_part_and_survives_json(tiny):
    found = measure_profile(tiny, **SMALL)
    assert set(found.pass_seconds) == set(range(1, 17))
    assert found.contexts == (20, 40, 90)
    assert found.context == 40
    assert found.num_layers == LAYERS
    assert set(found.attention) == {"attention"}
    assert set(found.mlp) == {"mlp"}
    assert found.vocab_size == VOCAB
    assert found.repeats == profiling.REPEATS
    assert found.round_seconds > 0
    assert type(found).from_json(found.to_json()) == found
    for draft in (SkipDraft.middle(6, 0.5), ExitDraft(2)):
        assert found.cost_ratio(draft) > 0


def on_a_known_machine(monkeypatch, noise):
    """Probes take what the synthetic machine takes, times 1 + noise()."""
    from selfspec.costs.block_fit import running_blocks

    def seconds(self, probe):
        slower = 1 + noise()
        if probe is PLAIN:
            return whole(1, self.reference) * slower
        draft, head = probe.draft or SkipDraft(), 1.0
        if isinstance(draft, ShortlistDraft):
            head, draft = len(draft.tokens) / VOCAB, draft.draft
        kinds = ("attention",) * LAYERS, ("mlp",) * LAYERS
        running = running_blocks(kinds, (draft.attention, draft.mlp), head)
        waits = 1 / probe.queued if probe.queued else 1.0
        return slower * sum(
            count * BLOCKS[kind].seconds(probe.rows, probe.context, waits)
            for kind, count in running.items()
        )

    monkeypatch.setattr(profiling._Bench, "seconds", seconds)


DRAFTS = [
    SkipDraft.middle(LAYERS, 0.2),
    SkipDraft.middle(LAYERS, 0.5),
    SkipDraft(attention={1, 3}, mlp={4}),
    SkipDraft(attention=range(6)),
    SkipDraft(mlp={2}),
    ExitDraft(1),
    ExitDraft(4),
    ShortlistDraft(SkipDraft.middle(LAYERS, 0.5), tuple(range(60))),
]


def errors(found):
    """Relative errors of every predicted c, at three contexts."""
    truth = profile()
    return [
        abs(found.cost_ratio(d, n, k) / truth.cost_ratio(d, n, k) - 1)
        for d in DRAFTS
        for n in (30, 90, 400)
        for k in (1, 3)
    ]


def test_the_costs_of_a_known_machine_are_found_exactly(tiny, monkeypatch):
    on_a_known_machine(monkeypatch, lambda: 0.0)
    found = measure_profile(tiny, **SMALL)
    assert max(errors(found)) < 1e-3
    assert found.residuals.largest < 1e-3


def test_other_programs_and_a_slow_down_of_a_fifth_leave_the_ratios(tiny, monkeypatch):
    """Probes are hit at random by up to 40 %, half of them, on top of steady drift."""
    rng, calls = random.Random(3), [0]

    def noise():
        calls[0] += 1
        drift = 0.2 * min(1.0, calls[0] / 700)
        return drift + (rng.random() < 0.5) * 0.4 * rng.random()

    on_a_known_machine(monkeypatch, noise)
    monkeypatch.setattr(profiling, "REPEATS", 7)
    found = sorted(errors(measure_profile(tiny, **SMALL)))
    assert found[len(found) // 2] < 0.05


def test_every_probe_leaves_the_cache_where_it_was(tiny):
    bench = profiling._Bench(tiny, None, 40, (20, 90))
    bench.repeat(bench.probes(), random.Random(0))
    for length, target in bench.targets.items():
        assert {entry.offset for entry in target.caches.entries} == {length}


def test_a_long_context_holds_the_keys_that_were_read(tiny):
    import mlx.core as mx

    bench = profiling._Bench(tiny, [5, 6, 7, 8], 40, ())
    entry = bench.targets[40].caches.entries[2]
    assert entry.keys.shape[2] == 40
    assert mx.array_equal(entry.keys[..., :4, :], entry.keys[..., 36:40, :])


def test_blocks_that_differ_are_kinds_of_their_own(tmp_path):
    model = selfspec.load(save_tiny_model(tmp_path / "tiny")).model
    narrow = model.layers[4].mlp
    narrow.up_proj = nn.Linear(32, 16, bias=False)
    narrow.gate_proj = nn.Linear(32, 16, bias=False)
    narrow.down_proj = nn.Linear(16, 32, bias=False)
    bench = profiling._Bench(model, None, 40, ())
    assert bench.kinds[1] == ("mlp", "mlp", "mlp", "mlp", "mlp 2", "mlp")
    only = bench.only("mlp 2")
    assert only.attention == frozenset(range(6))
    assert only.mlp == frozenset({0, 1, 2, 3, 5})
    found = measure_profile(model, reference=20, contexts=(), budget=0)
    assert {"mlp", "mlp 2"} <= set(found.blocks)


def test_contexts_beyond_the_models_positions_are_left_out(tmp_path):
    folder = save_tiny_model(tmp_path / "tiny", max_position_embeddings=100)
    bench = profiling._Bench(selfspec.load(folder).model, None, 256, (50, 1024))
    assert bench.contexts == (50, 84)
    assert bench.reference == 84


def test_a_window_without_room_for_a_probe_is_refused(tmp_path):
    folder = save_tiny_model(tmp_path / "tiny", max_position_embeddings=16)
    with pytest.raises(ValueError, match="too short"):
        measure_profile(selfspec.load(folder).model)


def test_a_model_whose_blocks_cannot_be_told_apart_is_refused():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(4, 4)]

    with pytest.raises(UnsupportedModelError):
        measure_profile(Odd())


def test_a_check_names_each_draft_with_both_costs(tiny):
    drafts = {"half": SkipDraft.middle(6, 0.5), "exit": ExitDraft(2)}
    found = check_profile(
        profile(), tiny, context=list(range(1, 30)), drafts=drafts, repeats=1
    )
    assert [c.label for c in found] == ["half", "exit"]
    for c in found:
        assert c.predicted == profile().cost_ratio(drafts[c.label], 29, 4)
        assert c.measured > 0
        assert c.error == pytest.approx(c.predicted / c.measured - 1)


def test_probes_cover_every_width_and_are_all_different():
    probe = Probe(None, 256, 4)
    assert probe == Probe(None, 256, 4)
    assert PLAIN not in {Probe(None, 256, m) for m in profiling.WIDTHS}
