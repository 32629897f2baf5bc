"""Weights written out in float32, for devices where that is the fast format.

On a CPU, MLX's quantised product with half-precision activations is 13 to 40 times
slower than float32, and half precision alone is slower too. Knows nothing of files.

    expand(model, name)     # every weight float32, nothing quantised
    float32_scales(model)   # quantised weights stay, what multiplies them is float32
"""

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.utils import dequantize_model

from selfspec.models.errors import UnsupportedModelError


def is_quantised(model: nn.Module) -> bool:
    return any("scales" in module for _, module in model.named_modules())


def expand(model: nn.Module, name: str) -> nn.Module:
    """`model` with every weight in float32; the quantised ones are written out."""
    if any("global_scale" in module for _, module in model.named_modules()):
        raise UnsupportedModelError(
            f"{name} has weights with a tensor-wide scale, which cannot be written out "
            "in float32. Way out: packed=True, or a 4-bit affine version of the model"
        )
    model.set_dtype(mx.float32)  # the scales first: products are then exact float32
    model = dequantize_model(model)
    model.set_dtype(mx.float32)
    return model


def float32_scales(model: nn.Module) -> nn.Module:
    """`model` with its quantised weights as they are and float32 activations."""
    model.set_dtype(mx.float32)
    return model


def stored_as(model: nn.Module, config: dict) -> str:
    """How the weights are stored, in words: "4-bit affine, groups of 64"."""
    if is_quantised(model):
        settings = config.get("quantization") or {}
        if "bits" in settings:
            mode = settings.get("mode", "affine")
            group = settings.get("group_size")
            mixed = any(isinstance(value, dict) for value in settings.values())
            text = f"{settings['bits']}-bit {mode}, groups of {group}"
            return f"{text}, some layers otherwise" if mixed else text
        return "quantised"
    sizes: dict[str, int] = {}
    for _, array in tree_flatten(model.parameters()):
        name = str(array.dtype).removeprefix("mlx.core.")
        sizes[name] = sizes.get(name, 0) + array.size
    return max(sizes, key=sizes.get)
