"""The one file that reads and writes results: rows on disk, runs that can be resumed.

results/<machine>/<model>/<experiment>.csv holds one row per timed pair, of every run;
provenance.json beside it says what each run was. A run that has not ended leaves a
marker that git ignores: only a run with a marker of the same fingerprint is continued,
so rows that came with a clone are never taken for one's own.

    with Run.open(folder, "naive-sweep", COLUMNS, fingerprint, total=96) as run:
        for pair in pairs_left(run.rows()):
            run.append(row)
        run.finish({"drift": 0.01})
"""

import csv
import fcntl
import io
import json
import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SCHEMA = 1
RESULTS = Path("results")


class ResultsError(Exception):
    """Results that cannot be read or written; the message names the file and the way out."""


def write_atomic(path: Path, text: str) -> None:
    """Replace `path` by `text` or leave it as it was; nothing in between is visible."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ResultsError(
            f"cannot write {path}: {error.strerror}. Way out: free some disk space "
            "or make the folder writable, then run the same command again; "
            "what was measured so far is kept"
        ) from None


def read_csv(path: Path) -> list[dict[str, str]]:
    """Rows of a results file as text; [] when there is none.

    Raises:
        ResultsError: not CSV, rows of another width, or a schema newer than this code.
    """
    if not path.exists():
        return []
    try:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            rows = list(reader)
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise unreadable(path, str(error)) from None
    for number, row in enumerate(rows, start=2):
        whole = None not in row and None not in row.values()
        if not whole or not {"schema", "run_id"} <= set(row):
            raise unreadable(path, f"line {number} is incomplete")
        if not row["schema"].isdigit():
            raise unreadable(path, f"line {number} has no schema number")
        if int(row["schema"]) > SCHEMA:
            raise ResultsError(
                f"{path} has schema {row['schema']}, this version reads up to "
                f"{SCHEMA}. Way out: update selfspec"
            )
    return rows


def read_provenance(folder: Path) -> dict[str, dict[str, Any]]:
    """run id -> what is known of the run, from provenance.json; {} when there is none."""
    path = folder / "provenance.json"
    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        runs = data["runs"]
        if not isinstance(runs, dict):
            raise ValueError("its runs are no object")
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise unreadable(path, str(error)) from None
    if data.get("schema", 0) > SCHEMA:
        raise ResultsError(
            f"{path} has schema {data['schema']}, this version reads up to "
            f"{SCHEMA}. Way out: update selfspec"
        )
    return runs


class Run:
    """One run of one experiment: appends rows atomically, can be resumed until finished.

    Make it with `Run.open`; leave it with `finish` (or by an exception or a kill, after
    which `open` with the same fingerprint continues it).
    """

    def __init__(self, folder, experiment, columns, run_id, marker, lock):
        self.folder, self.experiment, self.columns = folder, experiment, tuple(columns)
        self.id, self.resumed = run_id, bool(marker.get("resumed"))
        self._marker, self._lock = marker, lock

    @classmethod
    def open(
        cls,
        folder: Path,
        experiment: str,
        columns: Sequence[str],
        fingerprint: str,
        *,
        total: int,
        provenance: Mapping[str, Any],
    ) -> "Run":
        """Continue the unfinished run with this fingerprint, or begin a new one.

        Args:
            folder: results/<machine>/<model>.
            columns: CSV columns after schema, run_id.
            fingerprint: hash of code, parameters, size, model and machine.
            total: rows that the run will have.
            provenance: kept for the run at once, marked unfinished.

        Raises:
            ResultsError: another study writes here, or the files cannot be used.
        """
        lock = _lock(folder, experiment)
        path = _marker_path(folder, experiment)
        marker = _read_marker(path)
        if marker.get("fingerprint") == fingerprint:
            marker["resumed"] = True
        else:
            now = datetime.now(UTC)
            marker = {
                "run_id": f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}",
                "fingerprint": fingerprint,
                "started": now.isoformat(timespec="seconds"),
            }
        run = cls(folder, experiment, columns, marker["run_id"], marker, lock)
        read_csv(run.path)  # refuse a corrupt file before anything is measured
        done = len(run.rows())
        marker.update(total=total, done=done, done_at_start=done, began=time.time())
        run._write_provenance({**provenance, **run._number(), "finished": False})
        write_atomic(path, json.dumps(marker))
        return run

    @property
    def path(self) -> Path:
        """The experiment's CSV."""
        return self.folder / f"{self.experiment}.csv"

    def rows(self) -> list[dict[str, str]]:
        """This run's rows so far, as text; never those of another run."""
        return [row for row in read_csv(self.path) if row["run_id"] == self.id]

    def append(self, *rows: Mapping[str, Any]) -> None:
        """Add rows (all of them or none) and note the progress.

        Raises:
            ValueError: a row with other columns than the run's.
        """
        for row in rows:
            if set(row) != set(self.columns):
                odd = sorted(set(row) ^ set(self.columns))
                raise ValueError(f"columns of {self.experiment} differ: {odd}")
        own = {"schema": SCHEMA, "run_id": self.id}
        self._write([*read_csv(self.path), *({**own, **row} for row in rows)])
        self._marker["done"] += len(rows)
        write_atomic(
            _marker_path(self.folder, self.experiment), json.dumps(self._marker)
        )

    def note(self, **facts: Any) -> None:
        """Keep what was found out before the rows: costs, bounds, settings."""
        self._write_provenance({**facts, "finished": False})

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Mark the run finished, add `facts` to its provenance, drop the marker."""
        self._write_provenance({**facts, "finished": True})
        _marker_path(self.folder, self.experiment).unlink(missing_ok=True)

    def close(self) -> None:
        """Let another study write here."""
        self._lock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _number(self) -> dict[str, int]:
        """Which run of the folder it is: the order of runs, whatever the clock says."""
        runs = read_provenance(self.folder)
        known = runs.get(self.id, {}).get("number")
        others = [run.get("number", 0) for run in runs.values()]
        return {"number": known or 1 + max(others, default=0)}

    def _write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        header = ["schema", "run_id", *self.columns]
        known = {name for row in rows for name in row}
        header += sorted(known - set(header))  # an older or newer run's extra columns
        text = io.StringIO()
        writer = csv.DictWriter(text, header, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomic(self.path, text.getvalue())

    def _write_provenance(self, facts: Mapping[str, Any]) -> None:
        runs = read_provenance(self.folder)
        runs[self.id] = {
            **runs.get(self.id, {}),
            **facts,
            "experiment": self.experiment,
        }
        text = json.dumps({"schema": SCHEMA, "runs": runs}, indent=1, sort_keys=True)
        write_atomic(self.folder / "provenance.json", text + "\n")


def slug(text: str) -> str:
    """Lower-case letters, digits and hyphens only: safe in paths, links and labels."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"


def _marker_path(folder: Path, experiment: str) -> Path:
    return folder / f".{experiment}.unfinished.json"


def _read_marker(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # none, or cut off by a full disk: begin anew


def _lock(folder: Path, experiment: str):
    path = folder / f".{experiment}.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(path, "w")  # noqa: SIM115 (kept open: the lock lives with it)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ResultsError(
            f"another study of {experiment} writes to {folder}. "
            "Way out: wait until it ends, or name another folder for the results"
        ) from None
    except OSError as error:
        raise ResultsError(
            f"cannot write to {folder}: {error.strerror}. "
            "Way out: make the folder writable or name another one"
        ) from None
    return file


def unreadable(path: Path, why: str) -> ResultsError:
    """The refusal of a file that somebody else's hand or a broken disk changed."""
    return ResultsError(
        f"{path} cannot be read ({why}). Way out: restore it "
        f"(git checkout -- {path}) or move it away; nothing was changed"
    )
