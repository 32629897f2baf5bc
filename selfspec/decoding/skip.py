"""Drafting with blocks left out, on the target's own cache.

No second cache and no prefill: attention blocks that run read the keys and values the
full model left, and write theirs after them until verification writes over. The list of
layers keeps its length, so whatever a model remembers by position stays right.

    drafter = SkipDrafter(SkipDraft(attention={3}, mlp={3, 4}), target)
"""

import mlx.core as mx

from selfspec.decoding.drafting import StepDrafter, Target
from selfspec.decoding.drafts import ExitDraft, SkipDraft
from selfspec.decoding.prefix import Prefix
from selfspec.models.blocks import Stack
from selfspec.models.surgery import pass_through, zero_attention, zero_mlp


def skipping_layers(stack: Stack, draft: SkipDraft) -> list:
    """The full list of layers, with the blocks that `draft` leaves out neutralised."""
    unknown = sorted(i for i in draft.attention | draft.mlp if not i < stack.num_layers)
    if unknown:
        raise ValueError(
            f"the draft leaves out layers {unknown}, but the model has "
            f"{stack.num_layers} (0 to {stack.num_layers - 1})"
        )
    layers = list(stack.layers)
    for index in draft.attention | draft.mlp:
        if index in draft.whole_layers:
            layers[index] = pass_through(stack.layers[index])
        elif index in draft.attention:
            quiet = zero_attention(stack.attention_of(index))
            layers[index] = stack.replace(index, attention=quiet)
        else:
            quiet = zero_mlp(stack.mlp_of(index))
            layers[index] = stack.replace(index, mlp=quiet)
    return layers


class SkipDrafter(StepDrafter):
    """Runs the target without some blocks."""

    name = "SkipDraft"

    def __init__(self, draft: SkipDraft, target: Target):
        super().__init__(target)
        self.draft = draft
        layers = skipping_layers(target.stack, draft)
        depth = min(draft.attention | draft.mlp, default=target.stack.num_layers)
        self.prefix = None
        # A prefix of the whole stack would leave nothing to verify with.
        if draft.reuse_prefix and 0 < depth < target.stack.num_layers:
            self.prefix = Prefix(target.stack, depth)
            layers[depth - 1] = self.prefix.tap
        self.model = target.stack.with_layers(layers)

    def start(self, tokens):
        caches = self.target.caches
        if self.prefix:
            self.prefix.start(caches)
        self.entries = caches.stand_ins(self.draft.attention)
        return super().start(tokens)

    def step(self, ids):
        return self.model(ids[None], cache=self.entries)[:, -1]

    def verify(self, tokens, drafted):
        if self.prefix is None:
            return super().verify(tokens, drafted)
        caches, length = self.target.caches, self.target.length(tokens)
        for entry in caches.entries[self.prefix.depth :]:
            entry.trim(entry.offset - length)
        ids = mx.concatenate([mx.array(tokens[-1:], mx.uint32), drafted])
        return self.prefix.verify(ids, caches, length)


class ExitDrafter(StepDrafter):
    """Runs the first layers and the head; verification goes on from there."""

    name = "ExitDraft"

    def __init__(self, draft: ExitDraft, target: Target):
        super().__init__(target)
        if draft.exit_layer >= target.stack.num_layers:
            raise ValueError(
                f"exit_layer must be from 1 to {target.stack.num_layers - 1} for "
                f"{target.stack.num_layers} layers, got {draft.exit_layer}"
            )
        self.reuse = draft.reuse
        self.prefix = Prefix(target.stack, draft.exit_layer)
        self.model = self.prefix.early_model

    def start(self, tokens):
        self.prefix.start(self.target.caches)
        return super().start(tokens)

    def step(self, ids):
        return self.model(ids[None], cache=self.prefix.entries)[:, -1]

    def verify(self, tokens, drafted):
        if not self.reuse:
            return super().verify(tokens, drafted)
        caches, length = self.target.caches, self.target.length(tokens)
        ids = mx.concatenate([mx.array(tokens[-1:], mx.uint32), drafted])
        return self.prefix.verify(ids, caches, length)
