"""The README keeps its promises: the tree is the tree, the commands exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

from selfspec.study import run_records

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_printed_tree_is_the_tree():
    house = README.split("## The house")[1].split("```")[1]
    printed = {line.split()[0].rstrip("/") for line in house.strip().splitlines()}
    package = {
        f"selfspec/{path.parent.name}"
        for path in (ROOT / "selfspec").glob("*/__init__.py")
    }
    assert package <= printed
    assert all((ROOT / path).is_dir() for path in printed)


@pytest.mark.parametrize("target", ["study", "test", "book", "lint"])
def test_make_knows_the_targets(target):
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_it_opens_with_the_two_commands_and_one_figure():
    opening = README.split("## ")[0]
    assert re.findall(r"^make (\w+)", opening, re.MULTILINE) == ["study", "test"]
    [figure] = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", opening)
    assert (ROOT / figure).is_file()


def test_its_verdict_on_skipping_layers_is_that_of_the_results():
    assert "loses there too, in every configuration" in README
    tables = [
        record.table
        for record in run_records.latest(run_records.collect(ROOT))
        if (record.experiment, record.size) == ("naive-sweep", "paper")
    ]
    assert tables
    assert all(set(table["verdict"]) == {"slower"} for table in tables)


def test_its_program_runs_as_it_stands(tmp_path):
    """With a tiny model in the place of the embedded one, which it would fetch."""
    [program] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    folder = tiny.save_tiny_model(tmp_path / "tiny-llama")
    assert '"smollm2-135m"' in program
    program = program.replace('"smollm2-135m"', repr(str(folder)))
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_without_a_fitting_python_make_says_how_to_get_one(tmp_path):
    """An empty PATH but for the tools make needs: one clear message, non-zero exit."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in (
        "bash",
        "sh",
        "uname",
        "ldconfig",
        "grep",
        "id",
        "rm",
        "touch",
        "true",
    ):
        for folder in ("/bin", "/usr/bin", "/sbin", "/usr/sbin"):
            if Path(folder, name).exists():
                (tools / name).symlink_to(Path(folder, name))
                break
    make = subprocess.run(
        ["which", "make"], capture_output=True, text=True, check=True
    ).stdout.strip()
    done = subprocess.run(
        [make, "-C", str(ROOT), "VENV=" + str(tmp_path / "venv"), "book"],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "needs Python 3.11, 3.12 or 3.13" in done.stderr
    assert "brew install" in done.stderr
    assert not (tmp_path / "venv").exists()
