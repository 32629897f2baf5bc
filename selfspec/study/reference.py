"""Published figures that stand beside the measured ones, never among them.

They come from results/reference/*.csv, each row with its source. What a row implies is
computed here by the identity; which configuration gave which figure is inferred where
the row says so.

    post = reference.post(root)          # the June 2026 post's figures
    curves = reference.apple_curves(root)     # v(m) as others published it
    speed = reference.layerskip_speed(root)   # what trained exits gave elsewhere
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from selfspec.costs.identity import round_remainder, weight_share_cost
from selfspec.study.errors import StudyError

FOLDER = Path("results") / "reference"


@dataclass(frozen=True)
class Curve:
    """What passes over several rows cost on an Apple chip, as somebody published it.

    Attributes:
        source: key of book/references.bib.
        chip: "M4 Pro", or "not stated".
        what: the model, or the shape of the one matrix that was timed.
        whole_model: False for one matrix.
        verify_ratio: v by rows; only what the source gives.
    """

    source: str
    chip: str
    what: str
    whole_model: bool
    quantisation: str
    verify_ratio: dict[int, float]

    @property
    def name(self) -> str:
        chip = "chip not stated" if self.chip == "not stated" else self.chip
        return f"{chip}, {self.what}"

    @property
    def widest(self) -> int:
        """Rows up to which the source goes; beyond, nothing is said."""
        return max(self.verify_ratio)


def find_root(start: Path | None = None) -> Path:
    """The study's folder: the nearest one upwards with results/reference in it.

    Raises:
        StudyError: there is none.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / FOLDER).is_dir():
            return folder
    raise StudyError(
        "no results/reference folder here or above. "
        "Way out: run it inside a clone of the study"
    )


def post(root: Path) -> pd.DataFrame:
    """The naive post's figures with what the identity makes of them.

    Adds cost_ratio (c from weight shares: nobody profiled that machine), accepted (A,
    where the post gives an acceptance rate) and round_remainder (v + o implied, in
    plain steps).
    """
    table = pd.read_csv(root / FOLDER / "naive-layer-skip-post.csv")
    known = pd.read_csv(root / FOLDER / "post-models.csv").set_index("model")

    def cost_ratio(row) -> float:
        model = known.loc[row["model"]]
        return weight_share_cost(
            num_layers=int(model["num_layers"]),
            skipped_layers=max(1, round(model["num_layers"] * row["skip_fraction"])),
            layer_weights=model["layer_weights_millions"],
            head_weights=model["head_weights_millions"],
        )

    def remainder(row) -> float:
        if pd.isna(row["accepted"]) or pd.isna(row["speedup"]):
            return float("nan")
        return round_remainder(
            speedup=row["speedup"],
            accepted=row["accepted"],
            drafted=row["num_draft_tokens"],
            cost_ratio=row["cost_ratio"],
        )

    table["cost_ratio"] = table.apply(cost_ratio, axis=1)
    table["accepted"] = table["acceptance_rate"] * table["num_draft_tokens"]
    table["round_remainder"] = table.apply(remainder, axis=1)
    return table


def apple_curves(root: Path) -> list[Curve]:
    """The published curves of Apple chips, in the order of the file.

    Raises:
        StudyError: a row that is not whole.
    """
    path = root / FOLDER / "apple-verify-ratios.csv"
    table = pd.read_csv(path, keep_default_na=False)
    keys = ["source", "chip", "what", "whole_model", "quantisation"]
    odd = set(table["whole_model"]) - {"yes", "no"}
    if odd or (pd.to_numeric(table["ratio"], errors="coerce").fillna(0) <= 0).any():
        raise StudyError(
            f"{FOLDER / path.name}: whole_model must be yes or no and every ratio "
            "positive. Way out: restore the file with git"
        )
    return [
        Curve(
            **dict(zip(keys, key, strict=True)) | {"whole_model": key[3] == "yes"},
            verify_ratio={
                int(m): float(v)
                for m, v in zip(part["rows"], part["ratio"], strict=True)
            },
        )
        for key, part in table.groupby(keys, sort=False)
    ]


def layerskip_speed(root: Path) -> pd.DataFrame:
    """Published speedups of drafts that leave early, models trained for it.

    Adds cost_ratio: c from weight shares, (E + h) / (L + h), with h the head in layers.
    """
    table = pd.read_csv(root / FOLDER / "layerskip-speed.csv")

    def cost_ratio(row) -> float:
        return weight_share_cost(
            num_layers=int(row["num_layers"]),
            skipped_layers=int(row["num_layers"] - row["exit_layer"]),
            layer_weights=row["num_layers"],
            head_weights=row["head_in_layers"],
        )

    return table.assign(cost_ratio=table.apply(cost_ratio, axis=1))


def fitted_exits(root: Path) -> pd.DataFrame:
    """Published speedups of frozen models with a fitted exit, a row each."""
    return pd.read_csv(root / FOLDER / "fitted-exits.csv")


def layerskip_exits(root: Path) -> pd.DataFrame:
    """Published scores of exits with and without the training, a row each."""
    return pd.read_csv(root / FOLDER / "layerskip-exits.csv")
