"""`num_draft_tokens="auto"`: lossless, declining, measured once, fresh every time.

Profiles are synthetic where a decision is asked for: on one machine drafts are nearly
free, on the other a draft step costs about what a plain step does.
"""

import functools
import inspect

import mlx.core as mx
import mlx.nn as nn
import pytest

import selfspec
from selfspec import auto, blas, decoding
from selfspec.costs import DeclinePolicy, draft_costs, profile_key, timing
from selfspec.costs.store import profile_path
from selfspec.decoding import (
    AdapterDraft,
    Bridge,
    ExitDraft,
    FallbackDraft,
    LookupDraft,
    ModelDraft,
    ShortlistDraft,
    SkipDraft,
    Trace,
)
from selfspec.decoding.bridge import BRIDGES
from selfspec.models.blocks import find_stack
from selfspec.models.errors import UnsupportedModelError
from selfspec.models.remembered import Remembered
from tests.costs import synthetic
from tests.decoding import families
from tests.tiny import save_tiny_model

PROMPT = list(range(1, 12))
PERFECT = SkipDraft()  # leaves nothing out: always accepted
WRONG = SkipDraft(range(6), range(6))  # leaves everything out
STEP = 20 * synthetic.whole(1, 256)
NEARLY_FREE = synthetic.profile(
    step_seconds=STEP, pass_seconds={rows: STEP for rows in range(1, 17)}
)
COSTS = {"cost_ratio": 0.3, "verify_ratio": {2: 1.05, 8: 1.25}}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("auto") / "tiny")


@pytest.fixture(scope="session")
def plain(folder):
    model = selfspec.load(folder).model
    return [t for t, *_ in decoding.generate_step(PROMPT, model, max_tokens=60)]


@pytest.fixture
def loaded(folder):
    return selfspec.load(folder)


@pytest.fixture(autouse=True)
def nothing_known(tmp_path, monkeypatch):
    """An empty cache folder, and a program that has just begun."""
    monkeypatch.setenv("SELFSPEC_CACHE", str(tmp_path))
    monkeypatch.setattr(auto, "_profiles", Remembered())
    return tmp_path


@pytest.fixture
def machine(monkeypatch):
    """Call it with a profile: that is what measuring finds. Returns what was measured."""

    def install(profile):
        measured = []

        def measure(model):
            measured.append(model)
            return profile

        monkeypatch.setattr(auto, "measure_profile", measure)
        return measured

    return install


@pytest.fixture
def unmeasurable(monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("something was measured")

    monkeypatch.setattr(auto, "measure_profile", fail)
    monkeypatch.setattr(timing, "measure", fail)


def run(model, draft, max_tokens=60, **options):
    trace = Trace()
    options = {"num_draft_tokens": "auto", "trace": trace, **options}
    steps = selfspec.generate_step(
        PROMPT, model, draft=draft, max_tokens=max_tokens, **options
    )
    return [token for token, *_ in steps], trace


# What comes out


def test_a_perfect_cheap_draft_speculates(loaded, plain, machine):
    machine(NEARLY_FREE)
    tokens, trace = run(loaded.model, PERFECT)
    assert tokens == plain
    assert trace.plain_tokens == 0
    assert trace.tokens_per_round > 4


def test_a_draft_that_costs_what_a_step_costs_is_declined(loaded, plain, machine):
    machine(synthetic.profile())
    tokens, trace = run(loaded.model, PERFECT)
    assert tokens == plain
    assert trace.rounds == []


def test_a_draft_that_is_wrong_is_soon_declined(loaded, plain, machine):
    machine(synthetic.profile(step_seconds=1.1 * synthetic.whole(1, 256)))
    tokens, trace = run(loaded.model, WRONG)
    assert tokens == plain
    assert trace.rounds, "it never tried"
    assert trace.plain_tokens > 0.8 * len(plain)


@pytest.mark.parametrize(
    "draft",
    [
        SkipDraft.middle(6, 0.5),
        SkipDraft({3}, {3, 4}, reuse_prefix=True),
        ExitDraft(4),
        ShortlistDraft(SkipDraft(), tuple(range(100))),
        LookupDraft(),
        FallbackDraft(LookupDraft(), ExitDraft(4)),
        "layer",
        "mlp",
    ],
    ids=lambda draft: draft if isinstance(draft, str) else type(draft).__name__,
)
def test_every_draft_has_costs_and_leaves_the_text_alone(loaded, plain, machine, draft):
    machine(NEARLY_FREE)
    if draft in BRIDGES:
        draft = AdapterDraft(4, Bridge.like(find_stack(loaded.model), draft))
    tokens, trace = run(loaded.model, draft)
    assert tokens == plain
    assert trace.rounds


def test_another_model_drafts_under_auto(loaded, plain, machine, monkeypatch):
    machine(NEARLY_FREE)
    cheap = {"cost_ratio": 0.05, "catch_up_ratio": 0.01}
    monkeypatch.setattr(draft_costs, "_model_costs", lambda *known: cheap)
    tokens, trace = run(loaded.model, ModelDraft(loaded.model))
    assert tokens == plain
    assert trace.tokens_per_round > 4


def test_a_declined_draft_leaves_plain_decoding_one_step_ahead(
    loaded, machine, monkeypatch
):
    """While a token is handed out, the pass after it is queued already."""
    machine(synthetic.profile())
    passes, logits = [0], decoding.drafting.Target.logits

    def counted(self, ids):
        passes[0] += 1
        return logits(self, ids)

    monkeypatch.setattr(decoding.drafting.Target, "logits", counted)
    steps = selfspec.generate_step(
        PROMPT, loaded.model, draft=PERFECT, num_draft_tokens="auto", max_tokens=10
    )
    seen = []
    for _ in steps:
        seen.append(passes[0] - 1)  # less the prompt's
    assert seen == [2, 3, 4, 5, 6, 7, 8, 9, 10, 10]


def test_text_streams_under_auto(loaded, plain, machine):
    machine(NEARLY_FREE)
    responses = list(
        selfspec.stream_generate(
            loaded.model,
            loaded.tokenizer,
            "A text, not tokens.",
            30,
            draft=PERFECT,
            num_draft_tokens="auto",
        )
    )
    expected = selfspec.stream_generate(
        loaded.model, loaded.tokenizer, "A text, not tokens.", max_tokens=30
    )
    assert [r.token for r in responses] == [r.token for r in expected]
    assert responses[-1].trace.drafted > 0
    again = selfspec.stream_generate(
        loaded.model, loaded.tokenizer, mx.array(PROMPT), 9, num_draft_tokens="auto"
    )
    assert [r.token for r in again] == plain[:9]  # without a draft it is plain


def test_sampled_text_is_the_same_whether_or_not_it_had_to_measure(loaded, machine):
    measured = machine(NEARLY_FREE)
    first, _ = run(loaded.model, PERFECT, temperature=0.8, seed=3)
    second, _ = run(loaded.model, PERFECT, temperature=0.8, seed=3)
    assert len(measured) == 1
    assert first == second


# What is measured, and when


def test_it_is_measured_once_and_kept_for_the_same_model(folder, machine, capsys):
    measured = machine(NEARLY_FREE)
    model = selfspec.load(folder).model
    run(model, PERFECT, 5)
    said = capsys.readouterr().err
    assert "measuring what a step costs on this machine, about 20 seconds" in said
    assert said.count("\n") == 1
    run(model, PERFECT, 5)
    run(model, ExitDraft(3), 5)
    assert len(measured) == 1
    auto._profiles = Remembered()  # another program
    again = selfspec.load(folder)
    run(again.model, PERFECT, 5)
    assert len(measured) == 1
    assert capsys.readouterr().err == ""
    assert profile_path(profile_key(again.source.to_json())).is_file()


def test_another_model_is_measured_for_itself(folder, tmp_path, machine):
    measured = machine(NEARLY_FREE)
    run(selfspec.load(folder).model, PERFECT, 5)
    other = save_tiny_model(tmp_path / "other", seed=9)
    run(selfspec.load(other).model, PERFECT, 5)
    assert len(measured) == 2


def test_a_model_that_something_else_loaded_is_measured_once_a_program(
    machine, nothing_known, capsys
):
    measured = machine(NEARLY_FREE)
    model = families.build("llama")
    run(model, PERFECT, 5)
    run(model, PERFECT, 5)
    assert len(measured) == 1
    assert "once in this program" in capsys.readouterr().err
    assert not list(nothing_known.rglob("*.json"))
    run(families.build("llama", seed=1), PERFECT, 5)
    assert len(measured) == 2


def test_a_model_that_was_quantised_since_is_measured_anew(loaded, machine):
    measured = machine(NEARLY_FREE)
    run(loaded.model, PERFECT, 5)
    nn.quantize(loaded.model, group_size=32, bits=4)
    run(loaded.model, PERFECT, 5)
    run(loaded.model, PERFECT, 5)
    assert len(measured) == 2


def test_a_disk_that_keeps_nothing_costs_one_measurement(
    loaded, machine, nothing_known, capsys
):
    measured = machine(NEARLY_FREE)
    (nothing_known / "profiles").write_text("a file in the way")
    run(loaded.model, PERFECT, 5)
    run(loaded.model, PERFECT, 5)
    assert len(measured) == 1
    assert "was not kept" in capsys.readouterr().err


def test_other_blas_threads_are_other_costs(loaded, machine, monkeypatch):
    measured = machine(NEARLY_FREE)
    for threads in (1, 2, 1):
        monkeypatch.setattr(blas, "threads", lambda threads=threads: threads)
        run(loaded.model, PERFECT, 5)
    assert len(measured) == 2


def test_a_real_measurement_from_beginning_to_end(loaded, plain, monkeypatch):
    small = functools.partial(
        auto.measure_profile, reference=40, contexts=(90,), budget=0
    )
    monkeypatch.setattr(auto, "measure_profile", small)
    tokens, _ = run(loaded.model, ExitDraft(4))
    assert tokens == plain
    path = profile_path(profile_key(loaded.source.to_json()))
    assert path.is_file()


# What the caller says


class Made(DeclinePolicy):
    made: list = []

    def __init__(self, draft, **options):
        self.made.append((self, options))
        super().__init__(draft, **options)


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr(auto, "DeclinePolicy", Made)
    Made.made = []
    return Made.made


def test_every_generation_has_a_fresh_rule(loaded, machine, made):
    machine(NEARLY_FREE)
    for _ in range(3):
        run(loaded.model, WRONG, 20)
    policies = [policy for policy, _ in made]
    assert len({id(policy) for policy in policies}) == 3
    assert len({policy.first.mean for policy in policies}) == 1  # none began knowing


def test_own_costs_are_taken_and_nothing_is_measured(
    loaded, plain, made, unmeasurable, capsys
):
    tokens, trace = run(loaded.model, PERFECT, costs=COSTS)
    assert tokens == plain
    assert trace.tokens_per_round > 3
    [(_, options)] = made
    assert options == COSTS
    assert capsys.readouterr().err == ""
    dear = {"cost_ratio": 1.2, "verify_ratio": 1.0}
    _, trace = run(loaded.model, PERFECT, costs=dear)
    assert trace.rounds == []


def test_a_known_acceptance_is_where_it_starts(loaded, machine, made):
    machine(synthetic.profile(step_seconds=1.3 * synthetic.whole(1, 256)))
    _, low = run(loaded.model, PERFECT, 6, acceptance=0.01)
    _, high = run(loaded.model, PERFECT, 6, acceptance=0.99)
    assert [options["acceptance"] for _, options in made] == [0.01, 0.99]
    assert low.drafted < high.drafted
    run(loaded.model, PERFECT, 6, costs=COSTS, acceptance=0.5)
    assert made[-1][1] == {**COSTS, "acceptance": 0.5}


def test_costs_are_those_after_the_prompt_and_what_is_cached(
    loaded, machine, monkeypatch
):
    from mlx_lm.models.cache import make_prompt_cache

    machine(NEARLY_FREE)
    asked = []

    def noted(draft, model, profile, context, **options):
        asked.append(context)
        return COSTS

    monkeypatch.setattr(auto, "costs_of_draft", noted)
    entries = make_prompt_cache(loaded.model)
    run(loaded.model, PERFECT, 5, prompt_cache=entries)
    run(loaded.model, PERFECT, 5, prompt_cache=entries)
    assert asked == [len(PROMPT), 2 * len(PROMPT) + 4]


@pytest.mark.parametrize("length", [0, 3])
def test_a_fixed_length_goes_straight_through(loaded, plain, unmeasurable, length):
    tokens, trace = run(loaded.model, PERFECT, num_draft_tokens=length)
    assert tokens == plain
    assert {r.drafted for r in trace.rounds[:-1]} == ({3} if length else set())
    policy = decoding.FixedLength(PERFECT, 2)
    _, trace = run(loaded.model, PERFECT, policy=policy)
    assert {r.drafted for r in trace.rounds[:-1]} == {2}


def test_all_arguments_of_decoding_are_listed():
    for name in ("generate_step", "stream_generate"):
        listed = inspect.signature(getattr(selfspec, name)).parameters
        below = inspect.signature(getattr(decoding, name)).parameters
        engine = inspect.signature(decoding.generate_step).parameters
        wanted = [p for p in below.values() if p.kind is not p.VAR_KEYWORD]
        assert {"costs", "acceptance", *engine} <= set(listed)
        assert list(listed)[:3] == list(below)[:3]
        for p in wanted:
            assert listed[p.name].default == p.default, p.name
            assert listed[p.name].kind == p.kind, p.name


# What is refused


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"temperature": -1}, ValueError, "temperature must be"),
        ({"max_tokens": -2}, ValueError, "max_tokens must be"),
        ({"draft": "skip"}, TypeError, "draft must be a SkipDraft"),
        ({"draft": SkipDraft({6})}, ValueError, r"layers \[6\], but the model has 6"),
        ({"num_draft_tokens": "best"}, ValueError, '0 or more, or "auto"'),
        ({"num_draft_tokens": 3, "costs": COSTS}, ValueError, "costs .* are for"),
        ({"num_draft_tokens": 3, "acceptance": 0.5}, ValueError, "Way out: leave"),
        ({"costs": {"cost_ratio": 0.5}}, ValueError, "verify_ratio"),
        ({"costs": {**COSTS, "nonsense": 1}}, ValueError, "nonsense"),
        ({"costs": {**COSTS, "cost_ratio": "a"}}, ValueError, "not those of"),
        ({"costs": {**COSTS, "memory": 0}}, ValueError, "memory must be"),
        ({"costs": COSTS, "acceptance": 1.5}, ValueError, "acceptance must be"),
        (
            {"costs": {**COSTS, "acceptance": 0.5}, "acceptance": 0.5},
            ValueError,
            "multiple values",
        ),
    ],
    ids=str,
)
def test_mistakes_are_refused_in_one_line_before_anything_is_measured(
    loaded, unmeasurable, options, error, message
):
    options = {"draft": PERFECT, "num_draft_tokens": "auto", **options}
    with pytest.raises(error, match=message) as caught:
        selfspec.generate_step(PROMPT, loaded.model, **options)
    assert "\n" not in str(caught.value)


def test_a_model_that_cannot_draft_is_refused_before_anything_is_measured(unmeasurable):
    model = families.build("mamba")
    with pytest.raises(UnsupportedModelError, match="mamba.*Way out"):
        selfspec.generate_step(PROMPT, model, draft=PERFECT, num_draft_tokens="auto")


def test_a_model_that_cannot_be_measured_is_told_the_way_out(folder, monkeypatch):
    """A lookup can draft for it, but what a step costs stays unknown."""
    for reason in (
        UnsupportedModelError("odd: a looped stack. Way out: decode without a draft"),
        ValueError("odd: a window of 9 tokens is too short to profile"),
    ):

        def fail(model, reason=reason):
            raise reason

        monkeypatch.setattr(auto, "measure_profile", fail)
        model = selfspec.load(folder).model
        with pytest.raises(UnsupportedModelError) as caught:
            selfspec.generate_step(
                PROMPT, model, draft=LookupDraft(), num_draft_tokens="auto"
            )
        line = str(caught.value)
        assert line.count("Way out") == 1
        assert "Way out: a fixed num_draft_tokens" in line and "odd" in line


def test_decoding_itself_refuses_auto_and_names_the_way_out(loaded):
    with pytest.raises(ValueError, match="selfspec.generate_step or"):
        decoding.generate_step(
            PROMPT, loaded.model, draft=PERFECT, num_draft_tokens="auto"
        )
