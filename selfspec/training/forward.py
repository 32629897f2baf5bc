"""One pass that keeps the residual stream after every layer, and the head alone.

The model's own forward is driven both times, its layers wrapped for the one pass, so a
family's embedding scale, masks, final norm and soft-cap stay its own and no exit is
normed twice. The copies are made anew in every pass, because they hold the weights that
the model has then.

    stack = find_stack(model)
    streams = residual_streams(stack, ids)       # L arrays (B, T, dim), not normed
    logits = head_of(stack)(streams[3].reshape(-1, dim))         # exit after 4 layers
"""

from collections.abc import Callable, Sequence

import mlx.core as mx

from selfspec.models.blocks import Stack, name_of
from selfspec.models.errors import UnsupportedModelError
from selfspec.models.surgery import pass_through, with_call
from selfspec.training.dropout import Kept, leaving_out


def residual_streams(
    stack: Stack, ids: mx.array, kept: Sequence[Kept] | None = None
) -> list[mx.array]:
    """The stream after every layer, before the final norm.

    Args:
        ids: (B, T).
        kept: the samples that run each layer; None for all, everywhere.

    Raises:
        UnsupportedModelError: a layer returns more than the stream.
    """
    streams: list[mx.array] = []

    def keeping(layer, rows):
        run = leaving_out(layer, rows)

        def call(self, *args, **kwargs):
            out = run(*args, **kwargs)
            if not isinstance(out, mx.array):
                raise UnsupportedModelError(
                    f"{name_of(stack.model)}: its layers return more than the residual "
                    "stream, so exits cannot be taught. Way out: another model"
                )
            streams.append(out)
            return out

        return with_call(layer, call)

    rows = kept or (None,) * stack.num_layers
    wrapped = [keeping(layer, k) for layer, k in zip(stack.layers, rows, strict=True)]
    stack.with_layers(wrapped)(ids)
    return streams


def head_of(stack: Stack) -> Callable[[mx.array], mx.array]:
    """A function from rows of a stream (N, dim) to their logits (N, V)."""
    rows_now: list[mx.array] = []
    inject = with_call(stack.layers[0], lambda self, *args, **kwargs: rows_now[-1])
    passing = [pass_through(layer) for layer in stack.layers[1:]]
    model = stack.with_layers([inject, *passing])

    def head(rows: mx.array) -> mx.array:
        rows_now.append(rows[None])
        return model(mx.zeros((1, rows.shape[0]), mx.int32))[0]

    return head
