"""One built copy of the project for all tests of this folder that only look at it."""

import book_project
import pytest


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A clone with two invented runs of two models, built by the literal command."""
    root = book_project.copy_to(tmp_path_factory.mktemp("book") / "clone")
    scratch = tmp_path_factory.mktemp("scratch")
    book_project.add_run(root, scratch)
    book_project.add_run(
        root, scratch, machine="testron-9000-8-cores-16gb-cpu", model="other-1b"
    )
    from selfspec.study import pages

    pages.write(root)
    done = book_project.build(root, "-W", "-n", "--keep-going")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return root
