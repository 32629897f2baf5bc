"""Hub models: what is asked of the hub, and each of its errors as one clear line."""

import json
from collections import namedtuple
from types import SimpleNamespace

import httpx2
import huggingface_hub
import pytest
from huggingface_hub import errors

import selfspec
from selfspec.models import device, hub

NAME = "some-owner/Tiny-1B-4bit"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Stands in for huggingface_hub: a snapshot folder and what it is asked for."""

    def __init__(self, folder):
        self.folder = folder
        self.asked = []
        self.online_error = None
        self.cached = False

    def model_info(self, name, files_metadata=False):
        self.asked.append("info")
        if self.online_error:
            raise self.online_error
        files = [
            SimpleNamespace(rfilename=path.name, size=path.stat().st_size)
            for path in self.folder.iterdir()
        ]
        return SimpleNamespace(siblings=files, sha=COMMIT)

    def snapshot_download(self, name, allow_patterns, local_files_only=False):
        self.asked.append("cache" if local_files_only else "snapshot")
        assert not any(
            pattern.endswith((".py", ".bin", ".pt")) for pattern in allow_patterns
        )
        if local_files_only and not self.cached:
            raise errors.LocalEntryNotFoundError("not cached")
        if not local_files_only and self.online_error:
            raise self.online_error
        return str(self.folder)


@pytest.fixture
def fake(model_folder, monkeypatch):
    fake = FakeHub(model_folder(f"models--some-owner--Tiny/snapshots/{COMMIT}"))
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: fake)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake.snapshot_download)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *a, **k: None)
    return fake


def http_error(kind, status):
    request = httpx2.Request("GET", "https://hub.invalid/api")
    return kind(
        f"{status} Client Error", response=httpx2.Response(status, request=request)
    )


def refusal(name=NAME):
    with pytest.raises(selfspec.ModelError) as caught:
        selfspec.load(name)
    message = str(caught.value)
    assert "\n" not in message and "Way out: " in message and name in message
    return message


def test_source_of_a_hub_model(fake, tmp_path):
    source = selfspec.load(NAME).source
    assert (source.name, source.kind, source.revision) == (NAME, "hub", COMMIT)
    assert source.slug == "some-owner-tiny-1b-4bit"
    assert str(tmp_path) not in json.dumps(source.to_json())


def test_checksum_uses_the_names_of_the_hubs_big_files(fake, monkeypatch):
    """The cache links weights to blobs named by their SHA-256: no need to read them."""
    plain = selfspec.load(NAME).source.sha256
    weights = fake.folder / "model.safetensors"
    blob = fake.folder.parent / "blobs" / hub_sha256(weights)
    blob.parent.mkdir()
    weights.rename(blob)
    weights.symlink_to(blob)
    from selfspec.models import folder

    read = []
    real = folder.sha256
    monkeypatch.setattr(folder, "sha256", lambda p: read.append(p.name) or real(p))
    assert selfspec.load(NAME).source.sha256 == plain
    assert "config.json" in read and "model.safetensors" not in read


def hub_sha256(path):
    from selfspec.models.download import sha256

    return sha256(path)


def test_offline_once_cached(fake):
    fake.online_error = httpx2.ConnectError("no route")
    fake.cached = True
    assert selfspec.load(NAME).source.revision == COMMIT
    assert fake.asked == ["info", "cache"]


@pytest.mark.parametrize(
    "error",
    [
        httpx2.ConnectError("no route"),
        httpx2.ReadTimeout("slow"),
        errors.OfflineModeIsEnabled("offline"),
        errors.LocalEntryNotFoundError("not here"),
    ],
)
def test_no_network(fake, error):
    fake.online_error = error
    assert "the hub cannot be reached" in refusal()


@pytest.mark.parametrize(
    "kind, status", [(errors.GatedRepoError, 403), (errors.HfHubHTTPError, 403)]
)
def test_gated_repository(fake, kind, status):
    fake.online_error = http_error(kind, status)
    message = refusal()
    assert "licence" in message and "hf auth login" in message


@pytest.mark.parametrize(
    "kind, status",
    [(errors.RepositoryNotFoundError, 404), (errors.HfHubHTTPError, 401)],
)
def test_unknown_or_private_repository(fake, kind, status):
    fake.online_error = http_error(kind, status)
    message = refusal()
    assert "neither a folder here nor a model on the hub" in message
    assert "hf auth login" in message


def test_the_hub_is_down(fake):
    fake.online_error = http_error(errors.HfHubHTTPError, 503)
    assert "error 503" in refusal()


def test_a_full_disk_on_the_way(fake):
    fake.online_error = OSError(28, "No space left on device")
    assert "HF_HOME" in refusal()


def test_too_little_disk_is_said_before_the_download(fake, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(
        "selfspec.models.download.shutil.disk_usage", lambda path: usage(1, 1, 10)
    )
    assert "set HF_HOME" in refusal()
    assert fake.asked == ["info"]


def test_too_little_memory_is_said_before_the_download(fake, monkeypatch):
    monkeypatch.setattr("selfspec.models.device.memory_limit", lambda: 1000)
    assert "of memory" in refusal()
    assert fake.asked == ["info"]


def test_a_repository_without_safetensors_is_refused_unfetched(fake):
    (fake.folder / "model.safetensors").rename(fake.folder / "pytorch_model.bin")
    assert "pytorch_model.bin, which can run code" in refusal()
    assert fake.asked == ["info"]


@pytest.mark.parametrize("name", ["owner/", "/x", "a/b/c", "owner/na me", "a--b/c"])
def test_what_is_no_hub_name_is_not_looked_up(fake, name):
    with pytest.raises(selfspec.ModelError, match="is no model"):
        selfspec.load(name)
    assert fake.asked == []


def test_huggingface_hub_has_what_is_used_here():
    """The fakes above stand for these; the real ones must take the same arguments."""
    import inspect

    arguments = inspect.signature(huggingface_hub.snapshot_download).parameters
    assert {"allow_patterns", "local_files_only"} <= set(arguments)
    arguments = inspect.signature(huggingface_hub.HfApi.model_info).parameters
    assert "files_metadata" in arguments


def test_revision_is_a_commit_or_nothing(tmp_path):
    assert hub.revision(tmp_path / "snapshots" / COMMIT) == COMMIT
    assert hub.revision(tmp_path / "elsewhere") == ""


# the device, as far as it can be seen here


def test_device_describes_itself_and_counts_memory():
    import mlx.core as mx

    assert device.kind() in ("cpu", "metal", "cuda")
    assert device.description().strip()
    device.reset_peak_memory()
    before = device.peak_memory()
    mx.eval(mx.ones((1000, 1000)) + 1)
    device.synchronize()
    assert device.peak_memory() >= before + 4_000_000
