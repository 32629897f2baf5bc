"""Train the arms one after another, score their exits on the way, keep what is small.

Every arm and seed has a folder with its checkpoint, so a series that is stopped at any
moment goes on where it was; its rows are in results/<machine>/layerskip-arms/ (see
arms_table.py), written as soon as they are known. The weights that pages are made from
are kept in half precision, and every model is scored as it will be read back.

    series = Series(root)                               # task, settings, folders
    series.run(arms.plan(), say=print)                  # hours on a CPU
    series.run([("ld-ee", 0)]); series.small_draft()    # one model, and the small one
"""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tqdm import tqdm

from selfspec.study import arms_table, exit_scores, provenance, trained
from selfspec.study.errors import StudyError
from selfspec.study.exit_scores import Text
from selfspec.study.results import RESULTS, unreadable, write_atomic
from selfspec.study.trained import SMALL_DRAFT, WEIGHTS
from selfspec.training import arms, small_model, weights
from selfspec.training.loop import TrainResult, train
from selfspec.training.parses import NUM_TEST, NUM_TRAIN, Task, make_task
from selfspec.training.settings import Settings

KEPT = {arms_table.TAUGHT: trained.TAUGHT, arms_table.BASELINE: trained.UNTAUGHT}
DRAFT_LAYERS = 6  # as many as the main exit runs
WORK = ".work"  # checkpoints, beside the results; git ignores them
VISITS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)  # shares of the steps, scored
FEW_TEXTS = 100  # scored before the end; all of them at the end
TRAINING_COLUMNS = (
    "arm seed steps seconds step_seconds peak_bytes layers_run loss".split()
)
EXIT_COLUMNS = [*arms_table.KEYS] + (
    "texts exact positions surprise agreed right".split()
)


@dataclass(frozen=True)
class Series:
    """Arms that share data, steps and everything else but their recipe.

    Attributes:
        root: the study's folder.
        settings: of every arm; its seed is replaced by each run's.
        layers, width: of the model.
        num_train, num_test: texts of the task.
        task_seed: of the texts; the same for every arm and seed.
    """

    root: Path
    settings: Settings = Settings()
    layers: int = small_model.LAYERS
    width: int = small_model.WIDTH
    num_train: int = NUM_TRAIN
    num_test: int = NUM_TEST
    task_seed: int = 0
    _machine: dict[str, Any] = field(default_factory=provenance.machine, repr=False)

    @cached_property
    def task(self) -> Task:
        return make_task(
            self.task_seed, num_train=self.num_train, num_test=self.num_test
        )

    @cached_property
    def samples(self):
        return [self.task.encode(example) for example in self.task.train]

    @cached_property
    def texts(self) -> list[Text]:
        """The held-out texts, scored from the parse on."""
        samples = map(self.task.encode, self.task.test)
        return [Text(sample.ids, sample.start) for sample in samples]

    @property
    def folder(self) -> Path:
        """results/<machine>/layerskip-arms."""
        slug = provenance.machine_slug(self._machine)
        return self.root / RESULTS / slug / arms_table.FOLDER

    @property
    def configuration(self) -> dict[str, Any]:
        """What rows must share to stand in one table."""
        shared = {k: v for k, v in self.settings.to_json().items() if k != "seed"}
        return {
            "settings": shared,
            "model": {"layers": self.layers, "width": self.width},
            "task": {
                "seed": self.task_seed,
                "train": self.num_train,
                "test": self.num_test,
            },
            "recipes": {name: recipe.to_json() for name, recipe in arms.ARMS.items()},
        }

    def run(
        self, jobs: Iterable[tuple[str, int]], *, say: Callable[[str], None] = print
    ) -> None:
        """Train what of `jobs` is not trained yet, in their order.

        Args:
            jobs: (arm, seed).
            say: told a line an arm.

        Raises:
            StudyError: an unknown arm, or results of another configuration there.
            TrainingError: a training that cannot go on.
        """
        jobs = list(jobs)
        unknown = sorted({name for name, _ in jobs} - set(arms.ARMS))
        if unknown:
            raise StudyError(
                f"no arm {unknown[0]!r}. Way out: one of {', '.join(arms.ARMS)}"
            )
        self._check()
        for number, (arm, seed) in enumerate(jobs, start=1):
            place = f"{arm}, seed {seed} ({number} of {len(jobs)})"
            if self._done(arm, seed) and self._kept(arm, seed):
                say(f"{place}: trained already")
                continue
            result = self._train_arm(arm, seed, label=place)
            say(f"{place}: {result.steps} steps in {result.seconds:.0f} s")

    def small_draft(self, *, say: Callable[[str], None] = print) -> None:
        """Train the separate small model: plain training, the same data and steps."""
        self._check()
        label = f"{SMALL_DRAFT} ({DRAFT_LAYERS} layers)"
        if (self.root / WEIGHTS / SMALL_DRAFT / weights.WEIGHTS).is_file():
            say(f"{label}: trained already")
            return
        model = self._model(0, DRAFT_LAYERS)
        result = self._train(model, "baseline", 0, SMALL_DRAFT, label, visit=None)
        score = exit_scores.score_exits(weights.rounded(model), self.texts)[-1]
        about = {"arm": SMALL_DRAFT, "seed": 0, "exact_match": score.exact_match}
        self._keep(model, SMALL_DRAFT, about)
        self._write_about(
            small_draft={
                "layers": DRAFT_LAYERS,
                "seconds": result.seconds,
                "exact_match": score.exact_match,
            }
        )
        say(f"{label}: {result.steps} steps in {result.seconds:.0f} s")

    def _train_arm(self, arm: str, seed: int, label: str) -> TrainResult:
        model = self._model(seed, self.layers)

        def visit(step: int) -> None:
            end = step == self.settings.steps
            texts = self.texts if end else self.texts[:FEW_TEXTS]
            scores = exit_scores.score_exits(weights.rounded(model), texts)
            own = {"arm": arm, "seed": seed, "step": step}
            self._put(
                self.folder / arms_table.EXITS,
                EXIT_COLUMNS,
                arms_table.KEYS[:3],
                [{**own, **score.to_json()} for score in scores],
            )

        result = self._train(model, arm, seed, f"{arm}-{seed}", label, visit=visit)
        if seed == 0 and arm in KEPT:
            self._keep(model, KEPT[arm], {"arm": arm, "seed": seed})
        row = {
            "arm": arm,
            "seed": seed,
            "steps": result.steps,
            "seconds": round(result.seconds, 2),
            "step_seconds": round(result.step_seconds, 5),
            "peak_bytes": result.peak_bytes,
            "layers_run": round(result.layers_run, 5),
            "loss": round(result.loss, 6),
        }
        self._write_about()
        self._put(
            self.folder / arms_table.TRAINING, TRAINING_COLUMNS, ["arm", "seed"], [row]
        )
        return result

    def _train(self, model, arm, seed, name, label, visit) -> TrainResult:
        settings = replace(self.settings, seed=seed)
        steps = {max(1, round(share * settings.steps)) for share in VISITS}
        with steps_shown(label, settings.steps) as progress:
            return train(
                model,
                arms.ARMS[arm],
                self.samples,
                settings,
                self.folder / WORK / name,
                about={"arm": arm, "initial seed": seed},
                visit=visit,
                visits=steps,
                progress=progress,
            )

    def _model(self, seed: int, layers: int):
        return small_model.build(
            len(self.task.vocabulary), layers=layers, width=self.width, seed=seed
        )

    def _keep(self, model, name: str, about: Mapping[str, Any]) -> None:
        facts = {**about, **self.configuration["settings"]}
        facts["task"] = self.configuration["task"]
        tokenizer = weights.task_tokenizer(self.task)
        weights.save_small(model, tokenizer, self.root / WEIGHTS / name, facts)

    def _kept(self, arm: str, seed: int) -> bool:
        """Whether weights that should be there are."""
        folder = self.root / WEIGHTS / KEPT.get(arm, "")
        return seed != 0 or arm not in KEPT or (folder / weights.WEIGHTS).is_file()

    def _done(self, arm: str, seed: int) -> bool:
        rows = _read(self.folder / arms_table.TRAINING)
        return any((row["arm"], row["seed"]) == (arm, str(seed)) for row in rows)

    def _check(self) -> None:
        """Refuse to add to rows of another configuration."""
        path = self.folder / arms_table.ABOUT
        if not path.exists():
            return
        try:
            known = json.loads(path.read_text(encoding="utf-8"))["configuration"]
        except (OSError, ValueError, KeyError) as error:
            raise unreadable(path, repr(error)) from None
        if known != self.configuration:
            differing = [k for k, v in self.configuration.items() if known.get(k) != v]
            raise StudyError(
                f"{path.parent} holds arms of other {' and '.join(differing)}. "
                "Way out: the same ones, or move that folder away to begin anew"
            )

    def _write_about(self, **more: Any) -> None:
        path = self.folder / arms_table.ABOUT
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        machine = self._machine
        device = {"cpu": "CPU", "metal": "Metal", "cuda": "CUDA"}[machine["device"]]
        about = {
            **known,
            **provenance.code(),
            "machine": f"{machine['chip']} ({machine['cores']} cores, {device})",
            "surroundings": machine,
            "date": provenance.now(),
            "steps": self.settings.steps,
            "batch": self.settings.batch,
            "configuration": self.configuration,
            "command": "selfspec train --arms all",
            **more,
        }
        write_atomic(path, json.dumps(about, indent=1, sort_keys=True) + "\n")

    def _put(
        self,
        path: Path,
        columns: Sequence[str],
        keys: Sequence[str],
        rows: Sequence[Mapping[str, Any]],
    ) -> None:
        """Write rows, in the place of any with the same keys: a visit may come twice."""
        if (
            path.name == arms_table.EXITS
            and not (path.parent / arms_table.ABOUT).exists()
        ):
            self._write_about()
        own = tuple(str(rows[0][key]) for key in keys)
        before = [r for r in _read(path) if tuple(r[key] for key in keys) != own]
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*before, *rows])
        write_atomic(path, text.getvalue())


def _read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file, strict=True))
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise unreadable(path, str(error)) from None


class steps_shown:
    """Steps done, on a terminal as a bar, in a log as a line now and then."""

    def __init__(self, label: str, steps: int):
        self.bar = tqdm(
            desc=label,
            total=steps,
            unit=" steps",
            file=sys.stderr,
            mininterval=0.5 if sys.stderr.isatty() else 60.0,
            leave=False,
        )

    def __enter__(self) -> Callable[[int, int, float], None]:
        def progress(step: int, steps: int, loss: float) -> None:
            if not self.bar.n:  # a resumed training's rate is its own
                self.bar.initial = step - 1
            self.bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
            self.bar.update(step - self.bar.n)

        return progress

    def __exit__(self, *_):
        self.bar.close()
