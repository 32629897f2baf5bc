"""One handle on a model's layers and their blocks, found by structure.

A draft is "this model with some blocks left out", so it needs the list of layers and,
in each layer, the attention and the MLP, whatever a family calls them. The list is the
one inside the model whose elements are `model.layers`; the attention is the layer's one
child that takes a `cache`; the MLP is the one other child that holds a matrix. Knows no
family by name, and nothing of drafts or caches.

    stack = find_stack(model)
    layer = stack.replace(3, mlp=my_module)          # shallow copy, shares the weights
    other = stack.with_layers([*stack.layers[:3], layer, *stack.layers[4:]])
"""

import copy
import inspect
from dataclasses import dataclass, field

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from selfspec.models.errors import UnsupportedModelError


@dataclass(frozen=True)
class Stack:
    """The layers of a model and the names of their blocks.

    `path` leads from the model to the list of layers; `attention` and `mlp` hold one
    attribute name a layer.
    """

    model: nn.Module = field(repr=False)
    path: tuple[str, ...]
    layers: tuple[nn.Module, ...] = field(repr=False)
    attention: tuple[str, ...]
    mlp: tuple[str, ...]

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    def attention_of(self, index: int) -> nn.Module:
        return self.layers[index][self.attention[index]]

    def mlp_of(self, index: int) -> nn.Module:
        return self.layers[index][self.mlp[index]]

    def replace(self, index: int, *, attention=None, mlp=None) -> nn.Module:
        """A shallow copy of a layer with a block replaced; the original stays as it is."""
        layer = copy.copy(self.layers[index])
        if attention is not None:
            layer[self.attention[index]] = attention
        if mlp is not None:
            layer[self.mlp[index]] = mlp
        return layer

    def with_layers(self, layers) -> nn.Module:
        """A shallow copy of the model that runs `layers` and shares everything else."""
        root = copy.copy(self.model)
        holder = root
        for name in self.path[:-1]:
            holder[name] = copy.copy(holder[name])
            holder = holder[name]
        holder[self.path[-1]] = list(layers)
        return root


def name_of(model) -> str:
    """How messages name an architecture: mlx-lm's `model_type`, else the class."""
    args = getattr(model, "args", None)
    kind = getattr(model, "model_type", None) or getattr(args, "model_type", None)
    return kind if isinstance(kind, str) else type(model).__module__.split(".")[-1]


def find_stack(model: nn.Module) -> Stack:
    """Find the stack of layers of an mlx-lm model.

    Raises:
        UnsupportedModelError: the layers are not one plain list, or one of them is
            not one attention and one MLP.
    """
    name = name_of(model)
    try:
        layers = list(model.layers)
    except (AttributeError, TypeError):
        layers = []
    paths = [path for path, found in _lists(model) if _same(found, layers)]
    if not layers or len(paths) != 1:
        raise UnsupportedModelError(
            f"{name}: its layers are not one plain list ({len(paths)} candidates), so "
            "no block can be left out. Way out: decode without a draft"
        )
    if len({id(layer) for layer in layers}) != len(layers):
        raise UnsupportedModelError(
            f"{name}: a layer occurs twice in the stack (a looped stack), which cannot "
            "be skipped block by block. Way out: decode without a draft"
        )
    attention, mlp = zip(
        *(_blocks(name, i, x) for i, x in enumerate(layers)), strict=True
    )
    return Stack(model, paths[0], tuple(layers), attention, mlp)


def _lists(module, path=(), seen=None):
    """Every list of modules below `module`, without entering the lists."""
    seen = set() if seen is None else seen
    if id(module) in seen:
        return
    seen.add(id(module))
    for name, child in dict.items(module):
        if isinstance(child, nn.Module):
            yield from _lists(child, (*path, name), seen)
        elif isinstance(child, list) and all(isinstance(x, nn.Module) for x in child):
            yield (*path, name), child


def _same(found, layers) -> bool:
    return len(found) == len(layers) and all(
        a is b for a, b in zip(found, layers, strict=True)
    )


def _blocks(model_name, index, layer) -> tuple[str, str]:
    """Names of the attention and the MLP of one layer."""
    attention, mlp = [], []
    for name, child in dict.items(layer):
        if not isinstance(child, nn.Module):
            continue
        if "cache" in inspect.signature(type(child).__call__).parameters:
            attention.append(name)
        elif any(
            isinstance(value, mx.array) and value.ndim >= 2
            for _, value in tree_flatten(child)
        ):
            mlp.append(name)
    if len(attention) != 1 or len(mlp) != 1:
        raise UnsupportedModelError(
            f"{model_name}: layer {index} is not one attention and one MLP (found "
            f"{attention or 'none'} and {mlp or 'none'}). "
            "Way out: decode without a draft"
        )
    return attention[0], mlp[0]
