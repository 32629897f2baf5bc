"""Several prompts at once, greedy, each row lossless and at its own pace.

mlx-lm's batch cache keeps a left padding and an offset a row, and trims all rows alike;
rows that accept different lengths need more. A rejected row is therefore treated as
right padding: the row's keys and values are rolled to the right, which makes its
padding on the left longer and its offset shorter, and every row ends at the same place
again. Only skip drafts on plain caches; no window, no quantised cache.

    texts = generate_batch(prompts, model, draft=SkipDraft(mlp={3}), max_tokens=64)
"""

from collections.abc import Collection, Sequence

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import generation_stream
from mlx_lm.models.cache import BatchKVCache, KVCache, make_prompt_cache

from selfspec.decoding import self_test
from selfspec.decoding.drafts import SkipDraft
from selfspec.decoding.skip import skipping_layers
from selfspec.decoding.trace import Round, Trace
from selfspec.models.blocks import find_stack, name_of
from selfspec.models.errors import UnsupportedModelError

PAD = 0  # any token: padded places are masked


def generate_batch(
    prompts: Sequence[Sequence[int]],
    model: nn.Module,
    *,
    draft: SkipDraft,
    num_draft_tokens: int = 3,
    max_tokens: int = 256,
    eos_token_ids: Collection[int] = (),
    trace: Trace | None = None,
) -> list[list[int]]:
    """Greedy text of every prompt, each as if it were alone.

    Args:
        prompts: token ids, one list a row, of any lengths from 1.
        draft: the blocks that the draft leaves out.
        max_tokens: most tokens emitted a row.
        eos_token_ids: a row ends with the first of these it emits.
        trace: filled with one Round a row and round.

    Raises:
        UnsupportedModelError: the model's caches are not plain (a sliding window), or
            mlx-lm's own forward cannot take rows of different lengths.
        ValueError: no prompt, an empty one, or a number out of range.
    """
    if not prompts or not all(len(p) for p in prompts):
        raise ValueError("prompts must be one or more lists of at least one token")
    if max_tokens < 0 or num_draft_tokens < 0:
        raise ValueError("max_tokens and num_draft_tokens must be 0 or more")
    if any(type(entry) is not KVCache for entry in make_prompt_cache(model)):
        raise UnsupportedModelError(
            f"{name_of(model)}: a batch needs plain caches, and this model has windows "
            "or others. Way out: one prompt at a time (generate_step)"
        )
    self_test.check(model)
    _check_batch(model)
    with mx.stream(generation_stream):
        batch = _Batch(prompts, model, draft)
        rows = [list() for _ in prompts]
        open_rows = set(range(len(prompts))) if max_tokens else set()
        while open_rows:
            longest = max_tokens - min(len(rows[r]) for r in open_rows)
            emitted = batch.round(min(num_draft_tokens, longest - 1))
            for r in sorted(open_rows):
                tokens, drafted = emitted[r]
                if trace is not None:
                    trace.rounds.append(Round(drafted, len(tokens) - 1, drafted + 1))
                for token in tokens:
                    rows[r].append(token)
                    if token in eos_token_ids or len(rows[r]) == max_tokens:
                        open_rows.discard(r)
                        break
    if trace is not None:
        trace.prompt_tokens = sum(map(len, prompts))
        trace.emitted = sum(map(len, rows))
    return rows


def _check_batch(model) -> None:
    """Rows of different lengths together must say what each says alone."""
    rows = [[3, 5, 7, 11, 13], [2, 4, 6]]
    padding = [len(rows[0]) - len(row) for row in rows]
    entries = [BatchKVCache(list(padding)) for _ in model.layers]
    padded = [[PAD] * n + row for n, row in zip(padding, rows, strict=True)]
    alone = mx.concatenate([model(mx.array([row]))[:, -1] for row in rows])
    try:
        together = model(mx.array(padded), cache=entries)[:, -1]
        worst = mx.abs(together - alone).max().item()
        wrong = f"logits off by {worst:.2g}"
    except ValueError as error:
        worst, wrong = float("inf"), f"{error}".splitlines()[0]
    # not (a <= b), so that NaN refuses too
    if not worst <= 1e-2 * max(1.0, mx.abs(alone).max().item()):
        raise UnsupportedModelError(
            f"{name_of(model)}: mlx-lm's forward is wrong for rows of different "
            f"lengths ({wrong}). Way out: one prompt at a time (generate_step)"
        )


class _Batch:
    """Rows in step: one pass drafts or verifies for all, each keeps its own prefix."""

    def __init__(self, prompts, model, draft):
        stack = find_stack(model)
        self.model = model
        self.draft_model = stack.with_layers(skipping_layers(stack, draft))
        self.skipped = draft.attention
        longest = max(map(len, prompts))
        padding = [longest - len(p) for p in prompts]
        self.entries = [BatchKVCache(list(padding)) for _ in stack.layers]
        padded = [[PAD] * n + list(p) for n, p in zip(padding, prompts, strict=True)]
        padded = mx.array(padded, mx.uint32)  # (B, T)
        if longest > 1:
            model(padded[:, :-1], cache=self.entries)
            mx.eval([entry.state for entry in self.entries])
        self.pending = padded[:, -1:]

    def round(self, num_draft_tokens: int) -> list[tuple[list[int], int]]:
        """(tokens emitted, tokens drafted) of every row."""
        drafted = self._draft(num_draft_tokens)
        logits = self.model(drafted, cache=self.entries)
        best = mx.argmax(logits, axis=-1).astype(mx.uint32)  # (B, D + 1)
        agree = (best[:, :-1] == drafted[:, 1:]).astype(mx.int32)
        accepted = mx.cumprod(agree, axis=1).sum(axis=1)  # (B,)
        self.pending = mx.take_along_axis(best, accepted[:, None], axis=1)
        self._roll_back(num_draft_tokens - accepted)
        counts, best = accepted.tolist(), best.tolist()
        return [
            (row[: count + 1], num_draft_tokens)
            for row, count in zip(best, counts, strict=True)
        ]

    def _draft(self, num_draft_tokens):
        """The pending tokens and the drafted ones: (B, D + 1)."""
        entries = list(self.entries)
        for index in self.skipped:
            entries[index] = _StandIn(self.entries[index])
        tokens = [self.pending]
        for _ in range(num_draft_tokens):
            logits = self.draft_model(tokens[-1], cache=entries)
            tokens.append(mx.argmax(logits, axis=-1).astype(mx.uint32))
            mx.async_eval(tokens[-1])
        for index, entry in enumerate(self.entries):
            if index not in self.skipped:
                entry.trim(num_draft_tokens)
        return mx.concatenate(tokens, axis=1)

    def _roll_back(self, rejected):
        """Forget `rejected` (B,) rows, each row its own number."""
        for entry in self.entries:
            entry._right_padding = rejected
            entry.finalize()


class _StandIn(BatchKVCache):
    """Where a row stands in a batch cache, without keys and values."""

    def __init__(self, entry):
        self.keys = self.values = None
        self.offset, self.left_padding = entry.offset, entry.left_padding
        self._idx = entry._idx
        self._right_padding = None
