"""Two built copies of the project: one to look at, one to change and build again."""

import shutil
from pathlib import Path

import book_project
import pytest
from tiny import save_tiny_model

from selfspec.study import pages, study
from selfspec.study.experiments import AUTO


@pytest.fixture(scope="session")
def no_mlx(tmp_path_factory):
    """A folder that, first on the import path, makes MLX fail to import."""
    folder = tmp_path_factory.mktemp("no-mlx")
    for name in ("mlx", "mlx_lm"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise ImportError('no MLX here')\n")
    return folder


@pytest.fixture(scope="session")
def built(tmp_path_factory, no_mlx):
    """A clone with runs of several models, built by the literal command without MLX.

    One is a real sweep of a tiny random model in a local folder, by the real template;
    one is invented; and the rule that declines really ran on two tiny models. Tests only
    look at it.
    """
    scratch = tmp_path_factory.mktemp("scratch")
    root = book_project.copy_to(tmp_path_factory.mktemp("book") / "clone")
    folder = save_tiny_model(scratch / "tiny-study")
    real = study.run_study(str(folder), size="smoke", root=root)
    invented = book_project.add_run(root, scratch, title="An invented run")
    second = save_tiny_model(scratch / "tiny-second", seed=1)
    with pytest.MonkeyPatch.context() as patch:  # its profile is nobody else's
        patch.setenv("SELFSPEC_CACHE", str(scratch / "cache"))
        rules = [
            study.run_study(str(model), size="smoke", root=root, experiment=AUTO)
            for model in (folder, second)
        ]
    written = pages.write(root)
    done = book_project.build(root, *book_project.STRICT, PYTHONPATH=str(no_mlx))
    return Built(root, done, written, real, invented, rules)


class Built:
    def __init__(self, root: Path, done, written, real: Path, invented: Path, rules):
        self.root, self.done, self.written = root, done, written
        self.html = root / "book" / "_build" / "html"
        self.real, self.invented = self.name(real), self.name(invented)
        self.rules = [self.name(page) for page in rules]

    def name(self, page: Path) -> str:
        return page.relative_to(self.root / "book").with_suffix("").as_posix()

    def page(self, name: str) -> str:
        return book_project.html(self.root, name)


@pytest.fixture(scope="session")
def changing(tmp_path_factory):
    """A clone without any run; a test that changes it puts it back."""
    root = book_project.copy_to(tmp_path_factory.mktemp("changing") / "clone")
    book_project.forget_runs(root)
    return root


@pytest.fixture
def project(tmp_path):
    """What pages.write needs, without runs; cheap, for tests that build nothing."""
    root = tmp_path / "project"
    for name in ("book", "results/reference"):
        shutil.copytree(
            book_project.ROOT / name,
            root / name,
            symlinks=True,
            ignore=shutil.ignore_patterns("_build", "runs", "assets", "_generated"),
        )
    return root
