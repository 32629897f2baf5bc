"""The command: one line and an exit code for every mistake, help that names things."""

import subprocess
import sys

import pytest

from selfspec import cli
from tests.tiny import save_tiny_model


def run(*words, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "selfspec", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
    )


def test_help_lists_the_commands():
    out = run("--help")
    assert out.returncode == 0
    for command in ("study", "train", "finetune", "book"):
        assert command in out.stdout


@pytest.mark.parametrize(
    "words, says",
    [
        (["study", "--model", "no-such-model"], "'no-such-model' is no model"),
        (["study", "--size", "huge"], "invalid choice: 'huge'"),
        (["study", "--experiment", "magic"], "invalid choice: 'magic'"),
        (["study", "--preset", "post", "--model", "x"], "not allowed with"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        ([], "required"),
        (["study", "--prompts", "no-such.txt"], "there is no prompt file no-such.txt"),
        (
            ["study", "--experiment", "auto", "--mechanism", "one cache"],
            "--mechanism is a choice of naive-sweep, not of auto. Way out",
        ),
        (["train", "--arms", "magic"], "invalid choice: 'magic'"),
        (["train", "--arms", "all", "ld"], "--arms all is all of them. Way out"),
        (["train", "--steps", "0"], "steps must be 1 or more, got 0. Way out"),
        (["finetune", "--model", "no-such-model"], "'no-such-model' is no model"),
        (["finetune", "--rate", "-1"], "learning_rate must be above 0"),
    ],
)
def test_a_mistake_is_one_line_and_a_non_zero_exit(words, says):
    out = run(*words)
    assert out.returncode != 0
    assert says in out.stderr and "Traceback" not in out.stderr


def test_outside_a_clone_it_says_so(tmp_path):
    out = run("book", cwd=tmp_path)
    assert out.returncode == 1
    assert "Way out: run it inside a clone" in out.stderr
    assert len(out.stderr.strip().splitlines()) == 1


def test_ctrl_c_says_how_to_go_on(monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_book", interrupted)
    assert cli.main(["book"]) == cli.EXIT_INTERRUPTED
    assert "the same command goes on" in capsys.readouterr().err


def test_the_post_preset_is_the_posts_pair_and_grid(monkeypatch, tmp_path):
    from selfspec.study import study
    from selfspec.study.sweep_grid import SIZES

    asked = []
    monkeypatch.setattr(study, "run_study", lambda m, **k: asked.append((m, k)) or m)
    study.run_preset("post", size="paper", root=tmp_path)
    assert [model for model, _ in asked] == [
        "mlx-community/Qwen3-4B-4bit",
        "mlx-community/Meta-Llama-3.1-8B-Instruct-4bit",
    ]
    configurations = len(SIZES["paper"].configurations)
    assert configurations * len(asked) == 24


def tiny_series(monkeypatch):
    """The same series of much smaller models."""
    from selfspec.study import arms_series

    tiny = dict(layers=3, width=16, num_train=40, num_test=8)
    whole = arms_series.Series
    monkeypatch.setattr(arms_series, "Series", lambda *a: whole(*a, **tiny))


def test_train_makes_the_weights_that_the_study_keeps(monkeypatch, tmp_path, capsys):
    tiny_series(monkeypatch)
    words = ["train", "--steps", "2", "--root", str(tmp_path)]
    assert cli.main(words) == 0
    kept = sorted(path.name for path in (tmp_path / "weights").iterdir())
    assert kept == [
        "layerskip-small",
        "layerskip-small-baseline",
        "layerskip-small-draft",
    ]
    assert "rows: results/" in capsys.readouterr().out
    assert cli.main(words) == 0  # nothing is left to do
    assert capsys.readouterr().out.count("trained already") == 3


def test_train_takes_arms_and_seeds_by_name(monkeypatch, tmp_path):
    from selfspec.study import arms_table

    tiny_series(monkeypatch)
    words = ["train", "--arms", "ld", "ee", "--seeds", "2", "3", "--steps", "1"]
    assert cli.main([*words, "--root", str(tmp_path)]) == 0
    found = arms_table.load(tmp_path).training
    assert sorted(zip(found["arm"], found["seed"], strict=True)) == [
        ("ee", 2),
        ("ee", 3),
        ("ld", 2),
        ("ld", 3),
    ]
    assert not (tmp_path / "weights").exists()


def test_finetune_says_what_it_did_and_where(tmp_path, capsys):
    model = save_tiny_model(tmp_path / "tiny")
    data = tmp_path / "mine.jsonl"
    data.write_text('{"text": "one two three"}\n' * 8)
    words = ["finetune", "--model", str(model), "--data", str(data)]
    words += ["--steps", "2", "--batch", "2", "--root", str(tmp_path)]
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert "exit 6 of 6: loss" in out and "accepted" in out
    csv = out.split("rows: ")[1].strip()
    assert (tmp_path / csv).is_file() or csv.startswith(str(tmp_path))
