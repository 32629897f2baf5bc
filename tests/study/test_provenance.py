"""Provenance: everything that explains a number, nothing that names a person."""

import getpass
import json
import os

import selfspec
from selfspec.study import provenance
from tests.tiny import save_tiny_model


def test_a_run_says_machine_versions_model_code_and_command(tmp_path):
    source = selfspec.load(save_tiny_model(tmp_path / "tiny")).source
    facts = provenance.collect(source, "selfspec study --model tiny --size smoke")
    assert {"chip", "cores", "memory_gb", "system", "device", "blas"} <= set(
        facts["machine"]
    )
    assert facts["versions"]["mlx"][0].isdigit()
    assert facts["versions"]["mlx-lm"][0].isdigit()
    assert facts["model"]["sha256"] and facts["command"].startswith("selfspec")
    assert isinstance(facts["dirty"], bool)
    text = json.dumps(facts)
    for private in (str(tmp_path), os.uname().nodename, os.path.expanduser("~")):
        assert private not in text
    user = getpass.getuser()
    assert f"/{user}/" not in text


def test_machine_slug_names_chip_memory_and_device():
    mac = {"chip": "Apple M3", "cores": 8, "memory_gb": 16, "device": "metal"}
    assert provenance.machine_slug(mac) == "apple-m3-16gb-metal"
    xeon = {"chip": "Intel Xeon", "cores": 2, "memory_gb": 24, "device": "cpu"}
    assert provenance.machine_slug(xeon) == "intel-xeon-2-cores-24gb-cpu"


def test_code_hash_changes_with_the_code(tmp_path, monkeypatch):
    before = provenance.code_hash()
    assert before == provenance.code_hash()
    (tmp_path / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path)
    first = provenance.code_hash()
    (tmp_path / "a.py").write_text("x = 2\n")
    assert provenance.code_hash() != first != before
