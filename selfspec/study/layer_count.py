"""How many layers a way of decoding really runs: counted, not derived. No clock.

Every block of the model is wrapped, so that whatever runs it is seen: a draft, a
verification, rows that wait at an exit. A block counts half a layer. Evaluations are
calls, whatever the number of rows, because a call over a few rows is what costs about
one step where the weights are what has to be read; rows are counted beside them.

    counted, count = counting(model)
    list(generate_step(prompt, counted, draft=draft))
    count.evaluations, count.rows
"""

import inspect
from dataclasses import dataclass

import mlx.nn as nn

from selfspec.models.blocks import find_stack
from selfspec.models.surgery import with_call


@dataclass
class LayerCount:
    """Layers run so far: `evaluations` calls, over `rows` rows in all."""

    evaluations: float = 0.0
    rows: float = 0.0

    def reset(self) -> None:
        self.evaluations = self.rows = 0.0


def counting(model: nn.Module) -> tuple[nn.Module, LayerCount]:
    """A copy of the model that shares every weight and counts what it runs."""
    stack, count = find_stack(model), LayerCount()
    layers = [
        stack.replace(
            index,
            attention=_counted(stack.attention_of(index), count),
            mlp=_counted(stack.mlp_of(index), count),
        )
        for index in range(stack.num_layers)
    ]
    return stack.with_layers(layers), count


def _counted(block: nn.Module, count: LayerCount) -> nn.Module:
    # `cache` by its name, as attentions have it: that is how they are told from MLPs
    def attention(self, x, *args, cache=None, **kwargs):
        note(x)
        return block(x, *args, **kwargs, **({} if cache is None else {"cache": cache}))

    def mlp(self, x, *args, **kwargs):
        note(x)
        return block(x, *args, **kwargs)

    def note(x):
        count.evaluations += 0.5
        count.rows += 0.5 * x.shape[1]

    return with_call(block, attention if _takes_cache(block) else mlp)


def _takes_cache(block: nn.Module) -> bool:
    return "cache" in inspect.signature(type(block).__call__).parameters
