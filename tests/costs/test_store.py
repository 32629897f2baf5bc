"""A stored profile is used for exactly what it was measured on, or not at all."""

import json

import pytest

from selfspec import blas
from selfspec.costs import (
    load_profile,
    profile_for,
    profile_key,
    save_profile,
)
from selfspec.costs.store import SCHEMA, profile_path
from tests.costs.synthetic import profile

SOURCE = {
    "name": "any",
    "sha256": "ab" * 32,
    "architecture": "llama",
    "quantisation": "Q4_1, expanded to float32",
}


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SELFSPEC_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def key():
    return profile_key(SOURCE)


def never():
    raise AssertionError("measured although a profile was there")


def test_what_was_saved_is_used_and_not_measured_again(key):
    save_profile(key, profile())
    assert load_profile(key) == (profile(), "")
    assert profile_for(key, never) == profile()


def test_without_a_file_it_is_measured_once_and_kept(key):
    reasons, calls = [], []

    def measure():
        calls.append(1)
        return profile()

    profile_for(key, measure, told=reasons.append)
    profile_for(key, measure, told=reasons.append)
    assert len(calls) == 1
    assert reasons == ["nothing was measured yet"]


@pytest.mark.parametrize(
    "part",
    [
        "sha256",
        "quantisation",
        "device",
        "chip",
        "blas",
        "blas_threads",
        "mlx",
        "mlx_lm",
    ],
)
def test_any_other_model_machine_or_version_is_measured_anew(key, part):
    save_profile(key, profile())
    other = {**key, part: "another"}
    assert load_profile(other).profile is None
    # nor is it used if the file is put where the other's would lie
    profile_path(key).rename(profile_path(other))
    found = load_profile(other)
    assert found.profile is None
    assert part in found.reason


def test_the_key_follows_the_thread_count():
    before = blas.threads()
    try:
        blas.set_threads(1)
        one = profile_key(SOURCE)
        blas.set_threads(2)
        two = profile_key(SOURCE)
    finally:
        blas.set_threads(max(1, before))
    if blas.info()["name"] == "reference" or not blas.threads():
        pytest.skip("no OpenBLAS, whose threads could be set")
    assert {k for k in one if one[k] != two[k]} == {"blas_threads"}


def test_a_models_name_is_no_part_of_the_key():
    assert profile_key({**SOURCE, "name": "copy"}) == profile_key(SOURCE)


def spoil_text(path, change):
    path.write_text(change(path.read_text()))


def spoil_json(change):
    def spoil(text):
        values = json.loads(text)
        change(values)
        return json.dumps(values)

    return spoil


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text[: len(text) // 2], "cut short"),
        (lambda text: "", "cut short"),
        (lambda text: "\x00\x01", "cut short"),
        (lambda text: "[]", "no profile"),
        (lambda text: '{"schema": 1}', "no profile"),
        (spoil_json(lambda v: v.update(schema=SCHEMA + 1)), "schema"),
        (spoil_json(lambda v: v["profile"].update(step_seconds=1.0)), "changed"),
        (spoil_json(lambda v: v["profile"].update(extra=1)), "changed"),
        (spoil_json(lambda v: v.update(key="mine")), "elsewhere"),
        (spoil_json(lambda v: v.pop("sha256")), "changed"),
    ],
)
def test_a_spoilt_file_is_refused_with_a_reason_and_replaced(key, change, reason):
    save_profile(key, profile(step_seconds=0.5))
    spoil_text(profile_path(key), change)
    found = load_profile(key)
    assert found.profile is None
    assert reason in found.reason
    assert profile_for(key, profile) == profile()
    assert profile_for(key, never) == profile()


def test_a_file_with_keys_that_this_version_does_not_know_is_refused(key, monkeypatch):
    to_json = type(profile()).to_json
    monkeypatch.setattr(
        type(profile()), "to_json", lambda self: {**to_json(self), "later": 1}
    )
    save_profile(key, profile())
    assert "later" in load_profile(key).reason


def test_bytes_that_are_no_text_are_refused(key):
    save_profile(key, profile())
    profile_path(key).write_bytes(b"\xff\xfe\xff")
    assert load_profile(key).profile is None


def test_an_interrupted_write_leaves_the_old_profile(key, cache_folder, monkeypatch):
    import os

    save_profile(key, profile())

    def fail(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        save_profile(key, profile(step_seconds=0.5))
    assert load_profile(key).profile == profile()
    assert len(list((cache_folder / "profiles").iterdir())) == 1


def test_a_folder_that_cannot_be_written_costs_no_profile(key, cache_folder):
    (cache_folder / "profiles").write_text("a file in the way")
    reasons = []
    assert profile_for(key, profile, told=reasons.append) == profile()
    assert "not kept" in reasons[-1]


def test_no_path_and_no_host_is_written(key, cache_folder):
    import platform

    text = save_profile(key, profile()).read_text()
    assert str(cache_folder) not in text
    assert platform.node() not in text
