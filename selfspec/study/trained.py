"""This project's own trained models, by name: folders in weights/ that a clone has.

located("layerskip-small", root)         # root/weights/layerskip-small, as text
located("smollm2-135m", root)            # as it is: everybody else's names
"""

from pathlib import Path

from selfspec.study.errors import StudyError

WEIGHTS = Path("weights")
TAUGHT = "layerskip-small"  # LD + EE, seed 0
UNTAUGHT = "layerskip-small-baseline"  # the same without the recipe
SMALL_DRAFT = "layerskip-small-draft"  # the separate model of the two-model mode
NAMES = (TAUGHT, UNTAUGHT, SMALL_DRAFT)


def located(model: str, root: Path) -> str:
    """A trained model's name as its folder; any other name as it is.

    A folder of that name where the command runs wins, as it does over every name.

    Raises:
        StudyError: it is one of the names, and not in this clone.
    """
    if model not in NAMES or Path(model).is_dir():
        return model
    folder = (root / WEIGHTS / model).resolve()
    if not folder.is_dir():
        raise StudyError(
            f"{model} is not in {WEIGHTS}/ of this clone. Way out: selfspec train, "
            "which trains it from its seed in minutes, or git checkout -- weights"
        )
    return str(folder)
