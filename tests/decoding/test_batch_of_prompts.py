"""Several prompts at once: every row as if it were alone.

Elsewhere rows that accepted fewer tokens kept the rejected ones' keys and values, and
their rotations came from another row's offset (mlx-vlm 1155); prompts of different
lengths did not fit together (mlx-lm 735 and 983).
"""

import families
import pytest
import reference

from selfspec.decoding import SkipDraft, Trace, generate_batch
from selfspec.models.errors import UnsupportedModelError

LENGTH = 40
DRAFT = SkipDraft(attention={0, 2}, mlp={2, 4})
# gemma2's forward in mlx-lm cannot broadcast a mask a row over its grouped heads
NOT_IN_BATCHES = ["gemma2"]
PLAIN = ["llama", "qwen2", "qwen3_moe", "smollm3", "phi3", "granite", "mixtral"]


@pytest.mark.parametrize("family", PLAIN)
def test_every_row_is_lossless(family):
    """Prompts of different lengths, one of a single token."""
    model = families.build(family)
    prompts = [families.prompt(family, n, seed=n) for n in (1, 4, 13)]
    trace = Trace()
    rows = generate_batch(prompts, model, draft=DRAFT, max_tokens=LENGTH, trace=trace)
    for prompt, row in zip(prompts, rows, strict=True):
        assert row == reference.greedy(model, prompt, LENGTH)
    lengths = {r.accepted for r in trace.rounds}
    assert len(lengths) > 1, "rows never accepted different lengths"


def test_rows_end_by_themselves():
    model = families.build("llama")
    prompts = [families.prompt("llama", n, seed=n) for n in (3, 9)]
    alone = [reference.greedy(model, p, LENGTH) for p in prompts]
    eos = {alone[0][7], alone[1][27]}
    rows = generate_batch(
        prompts, model, draft=DRAFT, max_tokens=LENGTH, eos_token_ids=eos
    )
    for row, text in zip(rows, alone, strict=True):
        stop = next((i + 1 for i, t in enumerate(text) if t in eos), LENGTH)
        assert row == text[:stop]


@pytest.mark.parametrize("max_tokens", [0, 1, 2, 7])
@pytest.mark.parametrize("k", [0, 1, 4])
def test_lengths(max_tokens, k):
    model = families.build("llama")
    prompts = [families.prompt("llama", n, seed=n) for n in (5, 2)]
    rows = generate_batch(
        prompts, model, draft=DRAFT, num_draft_tokens=k, max_tokens=max_tokens
    )
    assert rows == [reference.greedy(model, p, max_tokens) for p in prompts]


def test_long_rows_grow_past_the_cache_step():
    """mlx-lm's cache grows by 256: rows are rolled before and after."""
    model = families.build("llama")
    prompts = [families.prompt("llama", n, seed=n) for n in (240, 120)]
    rows = generate_batch(prompts, model, draft=DRAFT, max_tokens=LENGTH)
    for prompt, row in zip(prompts, rows, strict=True):
        assert row == reference.greedy(model, prompt, LENGTH)


def test_windows_and_empty_prompts_are_refused():
    """Shared keys and values too: mlx-lm 1384 crashed on them, 1699 wrote garbage."""
    for family in ("gpt_oss", "gemma4_text"):
        with pytest.raises(UnsupportedModelError, match="one prompt at a time"):
            generate_batch([[1]], families.build(family), draft=DRAFT)
    for family in NOT_IN_BATCHES:
        with pytest.raises(UnsupportedModelError, match="rows of different lengths"):
            generate_batch([[1]], families.build(family), draft=SkipDraft())
    for prompts in ([], [[1], []]):
        with pytest.raises(ValueError, match="at least one token"):
            generate_batch(prompts, families.build("llama"), draft=DRAFT)
