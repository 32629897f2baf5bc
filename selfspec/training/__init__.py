"""The LayerSkip recipe: layer dropout, early-exit loss, curricula, and a task to teach.

LayerSkip (Elhoushi et al. 2024, arXiv 2404.16710) teaches early layers to speak through
the model's own head. Here it is for any mlx-lm model whose layers are one plain list,
with a loop that resumes exactly and a seeded task on which a small model learns it in
minutes. Beside it the third way: bridge_*.py fit a small bridge to a model whose own
weights stay as they are. Names are looked up on first use.
"""

from importlib import import_module

# name -> the module that defines it
_PUBLIC = {
    "FitSettings": "selfspec.training.bridge_fit",
    "card_of": "selfspec.training.bridge_file",
    "fit": "selfspec.training.bridge_fit",
    "load_bridge": "selfspec.training.bridge_file",
    "save_bridge": "selfspec.training.bridge_file",
    "ARMS": "selfspec.training.arms",
    "Recipe": "selfspec.training.recipe",
    "Sample": "selfspec.training.batches",
    "Settings": "selfspec.training.settings",
    "Task": "selfspec.training.parses",
    "TrainResult": "selfspec.training.loop",
    "TrainingError": "selfspec.training.errors",
    "add_lora": "selfspec.training.lora",
    "build": "selfspec.training.small_model",
    "fuse_lora": "selfspec.training.lora",
    "load_small": "selfspec.training.weights",
    "make_task": "selfspec.training.parses",
    "save_small": "selfspec.training.weights",
    "train": "selfspec.training.loop",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'selfspec.training' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
