"""What can go wrong with a model, as one clear line that names the way out.

The library raises these; `cli.py` prints the line and exits non-zero.

    try: selfspec.load(name)
    except selfspec.ModelError as error: print(error)
"""


class ModelError(Exception):
    """A model cannot be found, fetched, read or used."""


class UnsupportedModelError(ModelError):
    """A model that loads, but whose structure or cache selfspec refuses."""
