"""What tests of commands share: a tiny model, and commands run in this process."""

import pytest
from tiny import save_tiny_model

from selfspec import cli


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    return str(save_tiny_model(tmp_path_factory.mktemp("m") / "tiny-commands"))


@pytest.fixture
def command(capsys):
    """Run a command; returns exit code, standard output and standard error."""

    def run(*words):
        code = cli.main(list(words))
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return run
