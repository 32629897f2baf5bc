"""The one part that is fitted: a layer between an early layer and the model's head.

The target's own weights stay as they are; only a bridge is taught, so whatever it says
is verified by the very model that it was taught by. It is one layer of the model's own
class ("layer", which attends to what it read before), or the same without its attention
("mlp": norm and MLP alone), so no family is written again. Knows no caches and no files.

    bridge = Bridge.like(find_stack(model), "layer")     # a copy of the last layer
    layer = bridge.module(find_stack(model))
    draft = AdapterDraft(exit_layer=8, bridge=bridge)
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.utils import dequantize_model

from selfspec.models.blocks import Stack, name_of
from selfspec.models.errors import UnsupportedModelError
from selfspec.models.surgery import zero_attention

LAYER, MLP = "layer", "mlp"
BRIDGES = (LAYER, MLP)


@dataclass(frozen=True, eq=False)
class Bridge:
    """Weights of a bridge, by their names in a layer.

    Attributes:
        kind: "layer" or "mlp".
        weights: never quantised; of another precision than the model's if need be.
    """

    kind: str
    weights: Mapping[str, mx.array] = field(repr=False)

    def __post_init__(self):
        if self.kind not in BRIDGES:
            raise ValueError(
                f"a bridge is one of {', '.join(BRIDGES)}, got {self.kind!r}"
            )

    @classmethod
    def like(cls, stack: Stack, kind: str = LAYER) -> "Bridge":
        """A bridge with the weights of the model's last layer."""
        if kind not in BRIDGES:
            return cls(kind, {})  # says what there is
        return cls.of(_own_layer(stack, kind), stack, kind)

    @classmethod
    def of(cls, layer: nn.Module, stack: Stack, kind: str) -> "Bridge":
        """The weights that a module of `module` holds now."""
        weights = dict(tree_flatten(layer.parameters()))
        return cls(kind, {n: weights[n] for n in _names(stack, kind, weights)})

    @property
    def attends(self) -> bool:
        """Whether it reads a cache of its own."""
        return self.kind == LAYER

    @property
    def num_parameters(self) -> int:
        return sum(array.size for array in self.weights.values())

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.weights.values())

    def module(self, stack: Stack) -> nn.Module:
        """The layer that runs it, in the precision of the model's own layers.

        Raises:
            ValueError: it was made for a model of other sizes.
        """
        layer = _own_layer(stack, self.kind)
        own = dict(tree_flatten(layer.parameters()))
        own = {name: own[name] for name in _names(stack, self.kind, own)}
        shapes, ours = (
            {name: tuple(array.shape) for name, array in group.items()}
            for group in (own, self.weights)
        )
        if shapes != ours:
            name = sorted(n for n in {*shapes, *ours} if shapes.get(n) != ours.get(n))[
                0
            ]
            raise ValueError(
                f"the bridge does not fit {name_of(stack.model)}: {name} is "
                f"{ours.get(name, 'missing')}, not {shapes.get(name, 'there')}. "
                "Way out: a bridge that was fitted to this model"
            )
        layer.update(
            tree_unflatten(
                [(n, w.astype(own[n].dtype)) for n, w in self.weights.items()]
            )
        )
        mx.eval(layer.parameters())
        return layer


def _own_layer(stack: Stack, kind: str) -> nn.Module:
    """A copy of the last layer that shares no module, nothing in it quantised."""
    holder = nn.Module()
    holder.layer = _copied(stack.layers[-1])
    try:
        layer = dequantize_model(holder).layer
    except (TypeError, ValueError, RuntimeError) as error:
        raise UnsupportedModelError(
            f"{name_of(stack.model)}: the weights of its last layer cannot be written "
            f"out ({str(error).splitlines()[0]}), so no bridge can be like it. "
            "Way out: a version of the model that is not quantised"
        ) from None
    if kind == MLP:
        name = stack.attention[-1]
        layer[name] = zero_attention(layer[name])
    return layer


def _copied(module: nn.Module) -> nn.Module:
    """The module and all modules below it copied; arrays are shared, none is changed."""
    clone = copy.copy(module)
    clone._no_grad = set()  # what of the target is frozen is nothing to the copy
    for name, child in dict.items(module):
        if isinstance(child, nn.Module):
            clone[name] = _copied(child)
        elif isinstance(child, list):
            clone[name] = [
                _copied(one) if isinstance(one, nn.Module) else one for one in child
            ]
    return clone


def _names(stack: Stack, kind: str, weights: Mapping[str, mx.array]) -> list[str]:
    """Which of a layer's weights the bridge has."""
    attention = f"{stack.attention[-1]}."
    return [n for n in weights if kind == LAYER or not n.startswith(attention)]
