"""Where a model comes from, and one uniform handle on its blocks.

`load` fetches and reads a model and says in `ModelSource` what it is; `find_stack`
(blocks.py) finds its layers; device.py alone knows the MLX device. Imports nothing
from the rest of selfspec. Names are looked up on first use, so that an error class or
a source can be had without MLX.
"""

from importlib import import_module

# name -> the module that defines it
_PUBLIC = {
    "Loaded": "selfspec.models.loading",
    "ModelError": "selfspec.models.errors",
    "ModelSource": "selfspec.models.source",
    "UnsupportedModelError": "selfspec.models.errors",
    "encode_text": "selfspec.models.tokenizer",
    "find_stack": "selfspec.models.blocks",
    "load": "selfspec.models.loading",
    "render_prompt": "selfspec.models.tokenizer",
    "source_of": "selfspec.models.loading",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'selfspec.models' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
