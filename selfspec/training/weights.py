"""Trained weights as a folder in the hub's layout, in half precision.

What is committed is small, and what is measured is what is committed: half precision is
expanded to float32 wherever it is read, and a model that has just been trained is
rounded the same way before anything is said of it. `selfspec.load` reads the folder too.

    save_small(model, task_tokenizer(task), folder, {"arm": "ld-ee", "seed": 0})
    loaded = load_small(folder)                # .model .tokenizer .source
    trained_as(folder)                         # {"arm": "ld-ee", "seed": 0}
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map
from mlx_lm.tokenizer_utils import TokenizerWrapper
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from selfspec.models import Loaded, load
from selfspec.models.blocks import name_of
from selfspec.training.errors import TrainingError
from selfspec.training.parses import ASK, END, PAD, UNKNOWN, Task

ABOUT = "training.json"
WEIGHTS = "model.safetensors"
HALF = mx.float16


def task_tokenizer(task: Task) -> TokenizerWrapper:
    """Whole words as tokens. A request is a chat's one turn, which ends with `=>`."""
    vocab = {word: index for index, word in enumerate(task.vocabulary)}
    core = Tokenizer(models.WordLevel(vocab=vocab, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END,
        pad_token=PAD,
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
        chat_template="{{ messages[-1]['content'] }} " + ASK,
    )
    return TokenizerWrapper(fast, eos_token_ids=[task.end])


def save_small(
    model: nn.Module,
    tokenizer: TokenizerWrapper,
    folder: Path,
    about: Mapping[str, Any],
    *,
    half: bool = True,
) -> Path:
    """Write config, weights, tokenizer and what is known of the training.

    Args:
        half: in half precision; else as the weights are.

    Raises:
        TrainingError: a model whose configuration is not at hand, quantised weights,
            or a folder that cannot be written.
    """
    args = getattr(model, "args", None)
    if not is_dataclass(args):
        raise TrainingError(
            f"{name_of(model)}: its configuration is not at hand, so no folder can be "
            "made of it. Way out: keep the adapters"
        )
    weights = dict(tree_flatten(model.parameters()))
    if any(name.endswith(".scales") for name in weights):
        raise TrainingError(
            f"{name_of(model)} has quantised weights, which are not written. "
            "Way out: keep the adapters and join them with mlx_lm.fuse"
        )
    config = {name: value for name, value in asdict(args).items() if value is not None}
    config["eos_token_id"] = sorted(tokenizer.eos_token_ids)
    if half:
        weights = {name: array.astype(HALF) for name, array in weights.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / ".tmp.safetensors"
        mx.save_safetensors(str(temporary), weights, metadata={"format": "mlx"})
        os.replace(temporary, folder / WEIGHTS)
        tokenizer.save_pretrained(folder)
        for name, values in (("config.json", config), (ABOUT, dict(about))):
            text = json.dumps(values, indent=1, sort_keys=True)
            (folder / name).write_text(text + "\n", encoding="utf-8")
    except (OSError, RuntimeError) as error:
        raise TrainingError(
            f"cannot write {folder}: {error}. Way out: free some disk space or make "
            "the folder writable"
        ) from None
    return folder


def load_small(folder: str | os.PathLike) -> Loaded:
    """A folder of `save_small`, its weights in float32 on every device.

    Raises:
        ModelError: no such folder, or not a whole model.
    """
    return load(folder, packed=False)


def trained_as(folder: Path) -> dict[str, Any]:
    """What is known of the training; {} of a folder from elsewhere."""
    try:
        return json.loads((Path(folder) / ABOUT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def rounded(model: nn.Module) -> nn.Module:
    """The model as it will be read back: through half precision, then float32."""
    model.update(
        tree_map(
            lambda array: array.astype(HALF).astype(mx.float32), model.parameters()
        )
    )
    mx.eval(model.parameters())
    return model
