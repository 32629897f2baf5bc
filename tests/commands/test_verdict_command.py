"""`selfspec verdict`: a paragraph, and an exit code that a script can read."""

import pytest

from selfspec import cli
from selfspec.commands.verdict import NOTHING_PAYS
from selfspec.study import verdict


class Found:
    def __init__(self, best, pays):
        self.best, self.pays = best, pays

    def paragraph(self):
        return "Some words."


@pytest.mark.parametrize(
    "best, pays, code",
    [({}, True, 0), ({}, False, NOTHING_PAYS), (None, False, cli.EXIT_ERROR)],
)
def test_exit_code_says_whether_a_draft_pays(
    command, tiny_folder, monkeypatch, best, pays, code
):
    monkeypatch.setattr(verdict, "reach", lambda *_, **__: Found(best, pays))
    assert command("verdict", "--model", tiny_folder)[:2] == (code, "Some words.\n")


def test_ctrl_c_says_that_it_goes_on(command, tiny_folder, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(verdict, "reach", interrupted)
    code, _, errors = command("verdict", "--model", tiny_folder)
    assert code == cli.EXIT_INTERRUPTED and "goes on from there" in errors


def test_help_documents_the_exit_codes(capsys):
    with pytest.raises(SystemExit):
        cli.main(["verdict", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "Exit code 0 when a draft pays" in text and f"{NOTHING_PAYS} when none" in text
    )
