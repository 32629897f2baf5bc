"""What training did to the exits, arm by arm and seed by seed, read back from disk.

results/<machine>/layerskip-arms/ holds exits.csv (a row an arm, seed, step and exit
layer: sums over the held-out texts), training.csv (a row an arm and seed: what it cost)
and about.json. Ranges over seeds are given as ranges; an interval only from six seeds.
Needs no MLX.

    arms = load(root)                        # None where nobody has trained them
    by_exit(arms)                            # exact match, perplexity, agreement
    lead(arms, "ld-ee", "baseline")          # by exit layer, paired by seed
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from selfspec.study.results import RESULTS, unreadable
from selfspec.study.statistics import FEWEST_PROMPTS, median_difference
from selfspec.training.arms import ARMS

FOLDER = "layerskip-arms"
EXITS, TRAINING, ABOUT = "exits.csv", "training.csv", "about.json"
BASELINE, TAUGHT = "baseline", "ld-ee"
KEYS = ["arm", "seed", "step", "exit_layer"]
METRICS = ("exact_match", "perplexity", "agreement")


@dataclass(frozen=True)
class Arms:
    """The arms trained on one machine.

    Attributes:
        exits: KEYS, texts, and METRICS from the sums; a row an exit.
        training: arm, seed, steps, seconds, step_seconds (median), peak_bytes,
            layers_run (share of the layers that a step ran on average).
        about: machine, versions, commit, date, task and sizes.
        folder: results/<machine>/layerskip-arms, from the root.
    """

    exits: pd.DataFrame
    training: pd.DataFrame
    about: dict[str, Any]
    folder: Path

    @property
    def num_layers(self) -> int:
        return int(self.exits["exit_layer"].max())


def load(root: Path) -> Arms | None:
    """The arms that were trained last; None where there are none.

    Raises:
        ResultsError: a file that cannot be read.
    """
    found = []
    for path in (root / RESULTS).glob(f"*/{FOLDER}/{ABOUT}"):
        if not path.with_name(TRAINING).exists():
            continue  # the first of them is being trained
        try:
            about = json.loads(path.read_text(encoding="utf-8"))
            found.append((about["date"], path.parent, about))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise unreadable(path, repr(error)) from None
    if not found:
        return None
    _, folder, about = max(found, key=lambda one: one[:2])
    exits = _read(folder / EXITS, scored)
    training = _read(folder / TRAINING)
    return Arms(exits, training, about, folder.relative_to(root))


def _read(
    path: Path, of: Callable[[pd.DataFrame], pd.DataFrame] = lambda table: table
) -> pd.DataFrame:
    try:
        return of(pd.read_csv(path))
    except (OSError, ValueError, KeyError) as error:
        raise unreadable(path, repr(error)) from None


def scored(sums: pd.DataFrame) -> pd.DataFrame:
    """METRICS from the sums of `exit_scores.ExitScore`, beside KEYS and texts."""
    return sums[[*KEYS, "texts"]].assign(
        exact_match=sums["exact"] / sums["texts"],
        perplexity=np.exp((sums["surprise"] / sums["positions"]).clip(upper=700)),
        agreement=sums["agreed"] / sums["positions"],
    )


def names(arms: Arms) -> list[str]:
    """The arms that are there, in the order of the recipes; others after them."""
    found = dict.fromkeys(arms.exits["arm"])
    return [name for name in ARMS if name in found] + [
        name for name in found if name not in ARMS
    ]


def at_the_end(arms: Arms) -> pd.DataFrame:
    """The rows of every arm's and seed's last step."""
    last = arms.exits.groupby(["arm", "seed"])["step"].transform("max")
    return arms.exits[arms.exits["step"] == last]


def by_exit(arms: Arms) -> pd.DataFrame:
    """One line an arm and exit layer: seeds, and of each metric median, low and high.

    low and high are the lowest and the highest seed.
    """
    lines = []
    for arm in names(arms):
        own = at_the_end(arms)
        for layer, part in own[own["arm"] == arm].groupby("exit_layer"):
            line: dict[str, Any] = {
                "arm": arm,
                "exit_layer": int(layer),
                "seeds": len(part),
            }
            for name in METRICS:
                line |= {
                    name: part[name].median(),
                    f"{name}_low": part[name].min(),
                    f"{name}_high": part[name].max(),
                }
            lines.append(line)
    return pd.DataFrame(lines)


def lead(
    arms: Arms, arm: str = TAUGHT, over: str = BASELINE, metric: str = "exact_match"
) -> pd.DataFrame:
    """By exit layer, how far one arm lies above another, paired by seed.

    Columns: exit_layer, seeds, lead (median of the differences), low, high (the 95 %
    bootstrap interval over seeds; NaN below six), least (of the seeds).
    """
    own = at_the_end(arms).pivot_table(
        index="exit_layer", columns=["arm", "seed"], values=metric
    )
    if not {arm, over} <= set(own.columns.get_level_values(0)):
        return pd.DataFrame(
            columns=["exit_layer", "seeds", "lead", "low", "high", "least"]
        )
    seeds = own[arm].columns.intersection(own[over].columns)
    differences = own[arm][seeds] - own[over][seeds]
    lines = []
    for layer, row in differences.iterrows():
        found = median_difference(row)
        lines.append(
            {
                "exit_layer": int(layer),
                "seeds": len(seeds),
                "lead": found.value,
                "low": found.low,
                "high": found.high,
                "least": row.min(),
            }
        )
    return pd.DataFrame(lines)


def last_layer(arms: Arms) -> pd.DataFrame:
    """What the training costs where the model itself speaks: one line an arm."""
    table = by_exit(arms)
    return table[table["exit_layer"] == arms.num_layers].reset_index(drop=True)


def overhead(arms: Arms) -> pd.DataFrame:
    """Seconds a step and memory of each arm over the baseline's, paired by seed.

    Columns: arm, seeds, seconds, seconds_low, seconds_high, memory, layers_run; ratios
    are medians over seeds, low and high the lowest and the highest. Seconds are those
    of the median step: a training that was stopped and went on is not slower for it.
    """
    by_seed = arms.training.set_index(["arm", "seed"])
    if BASELINE not in by_seed.index.get_level_values(0):
        return pd.DataFrame(columns=["arm", "seeds", "seconds", "memory", "layers_run"])
    base = by_seed.loc[BASELINE]
    lines = []
    trained = set(arms.training["arm"])
    for arm in filter(trained.__contains__, names(arms)):
        both = by_seed.loc[arm].join(base, rsuffix="_base", how="inner")
        seconds = both["step_seconds"] / both["step_seconds_base"]
        lines.append(
            {
                "arm": arm,
                "seeds": len(both),
                "seconds": seconds.median(),
                "seconds_low": seconds.min(),
                "seconds_high": seconds.max(),
                "memory": (both["peak_bytes"] / both["peak_bytes_base"]).median(),
                "layers_run": by_seed.loc[arm]["layers_run"].mean(),
            }
        )
    return pd.DataFrame(lines)


def while_training(arms: Arms, arm: str = BASELINE) -> pd.DataFrame:
    """Perplexity of some exits by training step: step, exit_layer, median, low, high."""
    own = arms.exits[arms.exits["arm"] == arm]
    half = arms.num_layers // 2
    shown = sorted({max(1, half // 2), half, arms.num_layers})
    own = own[own["exit_layer"].isin(shown)]
    grouped = own.groupby(["step", "exit_layer"])["perplexity"]
    table = grouped.agg(["median", "min", "max"]).reset_index()
    return table.rename(columns={"median": "perplexity", "min": "low", "max": "high"})


def has_interval(table: pd.DataFrame) -> bool:
    """Whether there are seeds enough for an interval."""
    return bool(len(table)) and int(table["seeds"].min()) >= FEWEST_PROMPTS
