"""The command: one line and an exit code for every mistake, help that names things."""

import subprocess
import sys

import pytest

from selfspec import cli


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
    assert "study" in out.stdout and "book" in out.stdout


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
