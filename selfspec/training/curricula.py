"""Which exits have a loss at a step. The last one always has. No MLX.

Exits are counted as layers are, from 0: exit l reads the stream after layer l, which is
exit layer E = l + 1 elsewhere.

    enabled(recipe, num_layers=12, step=7, steps=500)        # 12 flags
"""

from selfspec.training.recipe import Recipe


def enabled(
    recipe: Recipe, num_layers: int, *, step: int, steps: int
) -> tuple[bool, ...]:
    """C(t, l) of every exit."""
    if not recipe.early_exit:
        return (False,) * (num_layers - 1) + (True,)
    if recipe.curriculum == "rotational":
        return rotational(num_layers, recipe.rotation, step)
    if recipe.curriculum == "gradual":
        return gradual(num_layers, step, steps)
    return (True,) * num_layers


def rotational(num_layers: int, rotation: int, step: int) -> tuple[bool, ...]:
    """C_rot,R: every R-th exit, the pattern moved on by one each step; and the last."""
    last = num_layers - 1
    return tuple(
        layer == last or (layer - step) % rotation == 0 for layer in range(num_layers)
    )


def gradual(num_layers: int, step: int, steps: int) -> tuple[bool, ...]:
    """C_grad: one more every T / 2L steps from the last downwards; all at T / 2."""
    more = int(step * 2 * num_layers / steps)
    return tuple(layer >= num_layers - 1 - more for layer in range(num_layers))
