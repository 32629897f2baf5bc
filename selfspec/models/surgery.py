"""Shallow copies of modules that do something else when called.

A copy shares every weight and keeps every attribute that a model may read from it (the
kind of attention, a window, a scale), because it is the same module with another
`__call__`. The original is untouched. Knows nothing of drafts or decoding.

    quiet = with_call(layer.mlp, lambda self, x: mx.zeros_like(x))
    passing = pass_through(layer)                # returns its input, moves the cache on
"""

import copy
from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn


def with_call(module: nn.Module, call: Callable) -> nn.Module:
    """A shallow copy of `module` whose call is `call(self, ...)`."""
    base = type(module)
    clone = copy.copy(module)
    clone.__class__ = type(base.__name__, (base,), {"__call__": call})
    return clone


def cache_of(args: tuple, kwargs: dict):
    """The cache among a block's arguments, wherever its family passes it, or None."""
    return next(
        (a for a in (*args, *kwargs.values()) if hasattr(a, "update_and_fetch")), None
    )


def advance(cache, rows: int) -> None:
    """Move a cache's position on by `rows` without writing keys or values."""
    if cache is None:
        return
    cache.offset = cache.offset + rows  # not +=: a batch's offset is a shared array
    if hasattr(cache, "_idx"):  # where a ring writes next
        cache._idx += rows


def pass_through(layer: nn.Module) -> nn.Module:
    """The layer, left out whole: its input is its output."""

    def call(self, x, *args, **kwargs):
        advance(cache_of(args, kwargs), x.shape[1])
        return x

    return with_call(layer, call)


def zero_attention(attention: nn.Module) -> nn.Module:
    """The attention, left out: it adds zero, and only moves its cache's position on."""

    def call(self, x, *args, **kwargs):
        advance(cache_of(args, kwargs), x.shape[1])
        return mx.zeros_like(x)

    return with_call(attention, call)


def zero_mlp(mlp: nn.Module) -> nn.Module:
    """The MLP, left out: it adds zero."""
    return with_call(mlp, lambda self, x, *args, **kwargs: mx.zeros_like(x))
