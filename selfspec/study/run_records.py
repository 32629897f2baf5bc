"""Every finished run that results/ holds, as the pages need it. Knows no Markdown.

A record is one run: who measured (machine, model), how much (size), the facts of its
provenance and its table, one line a configuration. Of several runs of the same
experiment and size on one machine the latest counts. Needs no MLX.

    for record in latest(collect(root)):
        for mechanism, table in record.tables.items():
            record.model_name, mechanism, count(table, "faster")
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from selfspec.study.experiments import EXPERIMENTS
from selfspec.study.results import RESULTS, read_provenance, unreadable
from selfspec.study.row_table import LOSSLESS, SAMPLED, load_rows

SIZES = ("paper", "default", "smoke")  # the largest first
DEVICES = {"metal": "Metal GPU", "cpu": "CPU", "cuda": "CUDA GPU"}
DRIFT_BOUND = 0.05  # DESIGN: a baseline that moved more is flagged


@dataclass(frozen=True)
class Record:
    """One finished run; `table` is its experiment's summary, one line a configuration.

    `namesake`: another model in results/ has the same name.
    """

    machine: str
    model: str
    experiment: str
    run_id: str
    facts: dict[str, Any]
    rows: pd.DataFrame
    table: pd.DataFrame
    namesake: bool = False

    @property
    def size(self) -> str:
        return self.facts["size"]

    @property
    def date(self) -> str:
        """The day, as YYYY-MM-DD."""
        return self.facts["date"][:10]

    @property
    def page(self) -> str:
        """Where the run's page stands below book/, without its ending."""
        return f"runs/{self.machine}--{self.model}/{self.experiment}-{self.size}"

    @property
    def model_name(self) -> str:
        """The name as its owner knows it; where two share one, with the folder's too."""
        name = self.facts["model"]["name"]
        return f"{name} ({self.model})" if self.namesake else name

    @property
    def device(self) -> str:
        return self.facts["machine"]["device"]

    @property
    def machine_name(self) -> str:
        """Chip, memory and device in words; a CPU run always says so."""
        machine = self.facts["machine"]
        chip, memory = machine["chip"], machine["memory_gb"]
        cores = "" if chip.startswith("Apple") else f"{machine['cores']} cores, "
        return f"{chip} ({cores}{memory} GB, {DEVICES.get(self.device, self.device)})"

    @property
    def lossless(self) -> int:
        """Pairs whose text was the target's own, those too short to time among them."""
        return int(self.rows["lossless"].isin(LOSSLESS).sum())

    @property
    def judged(self) -> int:
        """Pairs whose text could be judged: all but the sampled ones."""
        return int((self.rows["lossless"] != SAMPLED).sum())

    @property
    def ties(self) -> int:
        return int(self.rows["ties"].sum())

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Of a naive sweep: the table of each mechanism, the post's first."""
        names = dict.fromkeys(self.table["mechanism"])
        return {name: self.table[self.table["mechanism"] == name] for name in names}

    @property
    def drifted(self) -> bool:
        return abs(self.facts.get("drift") or 0.0) > DRIFT_BOUND

    @property
    def rank(self) -> tuple:
        """Sorts the largest size first, then the latest."""
        order = SIZES.index(self.size) if self.size in SIZES else len(SIZES)
        return (-order, *self.when)

    @property
    def when(self) -> tuple:
        """Sorts runs of one folder in the order in which they were begun.

        By their number, which a clock that was set back does not change; runs from
        before there were numbers by their date.
        """
        return (self.facts.get("number", 0), self.facts["date"], self.run_id)


def collect(root: Path) -> list[Record]:
    """All finished runs below root/results, by page and then by when they were begun.

    Raises:
        ResultsError: a results file that cannot be read.
    """
    records = []
    for place in sorted((root / RESULTS).glob("*/*/provenance.json")):
        for run_id, facts in read_provenance(place.parent).items():
            if facts.get("finished"):
                try:
                    record = _record(place.parent, run_id, facts)
                except (KeyError, TypeError, ValueError) as error:
                    raise unreadable(place, f"run {run_id}: {error!r}") from None
                records += [record] if record else []
    models: dict[str, set[str]] = {}
    for record in records:
        models.setdefault(record.model_name, set()).add(record.model)
    return sorted(
        (replace(r, namesake=len(models[r.model_name]) > 1) for r in records),
        key=lambda record: (record.page, *record.when),
    )


def _record(folder: Path, run_id: str, facts: dict) -> Record | None:
    """The run with its rows; None when they are gone.

    Raises:
        ValueError: an experiment that this version does not know.
    """
    name = facts["experiment"]
    if name not in EXPERIMENTS:
        raise ValueError(f"no experiment {name!r} is known here")
    rows = load_rows(folder / f"{name}.csv", run_id)
    table = pd.DataFrame() if rows.empty else EXPERIMENTS[name].summarise(rows)
    if table.empty:
        return None
    return Record(
        machine=folder.parent.name,
        model=folder.name,
        experiment=name,
        run_id=run_id,
        facts=facts,
        rows=rows,
        table=table,
    )


def of_experiment(records: Sequence[Record], *names: str) -> list[Record]:
    """The records of these experiments, in their order."""
    return [record for record in records if record.experiment in names]


def count(table: pd.DataFrame, verdict: str) -> int:
    """How many configurations ended faster, slower or with no difference."""
    return int((table["verdict"] == verdict).sum())


def latest(records: list[Record]) -> list[Record]:
    """Of several runs of one experiment and size on one machine the last."""
    return list({record.page: record for record in records}.values())


def headlines(records: list[Record]) -> list[Record]:
    """Of each machine, model and experiment the run of the largest size."""
    chosen: dict[tuple, Record] = {}
    for record in records:
        key = (record.machine, record.model, record.experiment)
        if key not in chosen or chosen[key].rank < record.rank:
            chosen[key] = record
    return list(chosen.values())
