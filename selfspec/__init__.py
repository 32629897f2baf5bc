"""Self-speculative decoding for MLX language models, and the study that measures it.

`import selfspec` costs nothing: names are looked up on first use, so building the book
needs no MLX. On Linux it loads OpenBLAS first, because MLX keeps whichever BLAS it finds
when it is imported (see selfspec/blas.py).

    import selfspec
    loaded = selfspec.load("smollm2-135m")
    draft = selfspec.SkipDraft.middle(loaded.source.num_layers, 0.3)
"""

from importlib import import_module

from selfspec import blas

__version__ = "0.1.0"

# name -> the module that defines it
_PUBLIC = {
    "load": "selfspec.models",
    "Loaded": "selfspec.models",
    "ModelError": "selfspec.models",
    "AdapterDraft": "selfspec.decoding",
    "DeclinePolicy": "selfspec.costs",
    "DynamicExitDraft": "selfspec.decoding",
    "ExitDraft": "selfspec.decoding",
    "FallbackDraft": "selfspec.decoding",
    "LookupDraft": "selfspec.decoding",
    "ModelDraft": "selfspec.decoding",
    "ShortlistDraft": "selfspec.decoding",
    "SkipDraft": "selfspec.decoding",
    "Trace": "selfspec.decoding",
    "load_bridge": "selfspec.training",
    "frequent_tokens": "selfspec.decoding",
    "generate_step": "selfspec.auto",
    "stream_generate": "selfspec.auto",
}

__all__ = sorted(_PUBLIC)

blas.load()


def __getattr__(name):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'selfspec' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__():
    return sorted([*globals(), *_PUBLIC])
