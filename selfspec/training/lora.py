"""LoRA on a loaded model, through mlx-lm's tuner, in mlx-lm's own adapter format.

add_lora(model, Adapters(rank=8))        # only the adapters are trained from now on
...                                      # train(model, ...)
save_adapters(model, Adapters(rank=8), folder)           # mlx_lm reads it
fuse_lora(model)                         # plain weights again, adapters added in
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.tuner.utils import linear_to_lora_layers

from selfspec.models.blocks import find_stack
from selfspec.training.errors import TrainingError


@dataclass(frozen=True)
class Adapters:
    """The words of mlx-lm's `lora_parameters`.

    Attributes:
        rank: of every adapter.
        scale: that its product is multiplied by.
        dropout: of what goes into it, while it trains.
    """

    rank: int = 8
    scale: float = 20.0
    dropout: float = 0.0

    def __post_init__(self):
        if self.rank < 1 or not 0 <= self.dropout < 1 or not self.scale > 0:
            raise ValueError(
                "rank must be 1 or more, scale above 0, dropout in [0, 1), got "
                f"{self.rank}, {self.scale}, {self.dropout}"
            )


def add_lora(model: nn.Module, adapters: Adapters) -> nn.Module:
    """Put adapters on every matrix of every layer and freeze everything else.

    The model says what it said before until a step of training: adapters begin at zero.
    """
    stack = find_stack(model)  # an unsupported model is refused before it is changed
    model.freeze()
    linear_to_lora_layers(model, stack.num_layers, asdict(adapters))
    mx.eval(model.parameters())
    return model


def fuse_lora(model: nn.Module) -> nn.Module:
    """Add the adapters to the weights that they stand on; plain layers afterwards."""
    fused = [
        (name, module.fuse())
        for name, module in model.named_modules()
        if hasattr(module, "fuse") and "lora_a" in module
    ]
    if not fused:
        raise TrainingError("there is no adapter to fuse. Way out: add_lora first")
    model.update_modules(tree_unflatten(fused))
    model.unfreeze()
    mx.eval(model.parameters())
    return model


def save_adapters(model: nn.Module, adapters: Adapters, folder: Path) -> None:
    """Write what `mlx_lm.load(..., adapter_path=folder)` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    trained = dict(tree_flatten(model.trainable_parameters()))
    mx.save_safetensors(str(folder / "adapters.safetensors"), trained)
    config = {
        "fine_tune_type": "lora",
        "num_layers": len(model.layers),
        "lora_parameters": asdict(adapters),
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
