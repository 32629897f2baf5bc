"""Drafting with blocks left out, on the target's own cache.

No second cache and no prefill: attention blocks that run read the keys and values the
full model left, and write theirs after them until verification writes over. The list of
layers keeps its length, so whatever a model remembers by position stays right. Leaving
early (LayerSkip) is leaving out every block beyond the exit.

    drafter = SkipDrafter(SkipDraft(attention={3}, mlp={3, 4}), target)
"""

from selfspec.decoding.drafting import StepDrafter, Target, rows_to_verify
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
    """Runs the target without some blocks; may keep what it computes before them."""

    name = "SkipDraft"

    def __init__(self, draft: SkipDraft, target: Target):
        super().__init__(target)
        self.skipped = draft.attention
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
        # Another draft may have run ahead in this very round, and proposed nothing.
        caches.roll_back(self.target.length(tokens))
        if self.prefix:
            self.prefix.rows.clear()
        self.entries = caches.stand_ins(self.skipped)
        return super().start(tokens)

    def step(self, ids):
        return self.model(ids[None], cache=self.entries)[:, -1]

    def verify(self, tokens, drafted):
        if self.prefix is None:
            return super().verify(tokens, drafted)
        rows, length = rows_to_verify(tokens, drafted), self.target.length(tokens)
        return self.prefix.verify(rows, self.target.caches, length)


class ExitDrafter(SkipDrafter):
    """Runs the first layers and the head; verification goes on from there."""

    name = "ExitDraft"

    def __init__(self, draft: ExitDraft, target: Target):
        num_layers = target.stack.num_layers
        if draft.exit_layer >= num_layers:
            raise ValueError(
                f"exit_layer must be from 1 to {num_layers - 1} for "
                f"{num_layers} layers, got {draft.exit_layer}"
            )
        beyond = range(draft.exit_layer, num_layers)
        super().__init__(SkipDraft(beyond, beyond, reuse_prefix=draft.reuse), target)
