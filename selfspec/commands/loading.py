"""A model by the name that a reader types, this project's own ones included.

loaded = load("layerskip-small", say)
"""

from pathlib import Path


def load(name: str, say):
    """`selfspec.load`, with the names of this project's trained models known.

    Raises:
        ModelError, StudyError: one line that names the way out.
    """
    from selfspec import models
    from selfspec.study import reference, trained
    from selfspec.study.errors import StudyError

    try:
        root = reference.find_root()
    except StudyError:  # any model can be tried outside of a clone
        root = Path.cwd()
    say(f"loading {name}")
    return models.load(trained.located(name, root))
