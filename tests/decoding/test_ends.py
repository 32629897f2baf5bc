"""End of sequence at every place of a round, for every kind of draft.

Elsewhere an end that was accepted inside a round went unseen and the text ran on
(transformers 31301, 47912, 48981). So every place is looked for and tried: each drafted
position, the bonus token after a whole draft, and the target's own after a rejection.
"""

import families
import pytest
import reference
from mlx_lm.models.cache import make_prompt_cache
from running import DRAFTS, Tokenizer, drafts_of, run

from selfspec.decoding import SkipDraft, Trace, stream_generate

STRETCH, GO_ON = 14, 8
BONUS, CORRECTION = "bonus", "after a rejection"


@pytest.fixture(scope="module")
def case():
    model, prompt = families.build("llama"), families.prompt("llama", 10)
    return model, prompt, reference.greedy(model, prompt, 200)


def places(rounds, k):
    """Where in its round each emitted token stands; None in a round cut short."""
    for r in rounds:
        yield from range(r.accepted)
        whole = r.accepted == r.drafted
        yield (BONUS if r.drafted == k else None) if whole else CORRECTION


def ends(case, draft, k):
    """{place: (context, tokens to an end there, text after it)}, every place once.

    A token can be the end where it has not been emitted before.
    """
    model, prompt, text = case
    found = {}
    for start in range(0, len(text) - STRETCH - GO_ON, 5):
        context = [*prompt, *text[:start]]
        tokens, trace = run(model, context, STRETCH, draft=draft, num_draft_tokens=k)
        for at, place in enumerate(places(trace.rounds, k)):
            if place is not None and tokens[at] not in tokens[:at]:
                after = text[start + at + 1 :]
                found.setdefault(place, (context, tokens[: at + 1], after))
        if len(found) == k + 2:
            break
    return found


@pytest.mark.parametrize(
    ("name", "k"), [*((name, 3) for name in DRAFTS), ("skip", 1), ("few blocks", 5)]
)
def test_end_of_sequence_at_each_draft_position_and_as_the_bonus(case, name, k):
    model = case[0]
    draft = drafts_of(model).get(name, SkipDraft(attention={2}, mlp={4}))
    found = ends(case, draft, k)
    assert set(found) == {*range(k), BONUS, CORRECTION}
    for context, tokens, after in found.values():
        # several ids end a text; the second of these would come later
        other = next(t for t in after if t not in tokens)
        trace, entries = Trace(), make_prompt_cache(model)
        options = {"draft": draft, "num_draft_tokens": k, "prompt_cache": entries}
        responses = list(
            stream_generate(
                model,
                Tokenizer(tokens[-1], other),
                context,
                max_tokens=-1,
                trace=trace,
                **options,
            )
        )
        assert [r.token for r in responses] == tokens
        *before, last = [r.finish_reason for r in responses]
        assert last == "stop" and set(before) <= {None}
        assert trace.emitted == responses[-1].generation_tokens == len(tokens)
        # the cache holds the text but the end itself, and goes on from there
        assert {e.offset for e in entries} == {len(context) + len(tokens) - 1}
        more, _ = run(model, tokens[-1:], GO_ON, **options)
        assert more == after[:GO_ON]
