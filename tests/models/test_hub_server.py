"""The real huggingface_hub against a small hub on this machine.

It runs in another process, because huggingface_hub reads its settings when imported.
"""

import hashlib
import http.server
import json
import subprocess
import sys
import threading

import pytest

COMMIT = "fedcba9876543210fedcba9876543210fedcba98"

PROGRAM = """
import json, sys
import selfspec
for name in sys.argv[1:]:
    try:
        print(json.dumps(selfspec.load(name).source.to_json()))
    except selfspec.ModelError as error:
        print(json.dumps(str(error)))
"""


@pytest.fixture
def hub(model_folder):
    folder = model_folder("files")
    (folder / "modeling.py").write_text("raise SystemExit('code was run')")
    (folder / "pytorch_model.bin").write_bytes(b"code")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    asked = []

    def entry(name):
        digest = hashlib.sha1(files[name]).hexdigest()
        return {"type": "file", "path": name, "size": len(files[name]), "oid": digest}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            path = self.path.partition("?")[0]
            if path.removesuffix("/revision/main") == "/api/models/owner/tiny":
                siblings = [
                    {"rfilename": name, "size": len(data), "blobId": "0"}
                    for name, data in files.items()
                ]
                self.give({"id": "owner/tiny", "sha": COMMIT, "siblings": siblings})
            elif path == f"/api/models/owner/tiny/tree/{COMMIT}":
                self.give([entry(name) for name in files])
            elif path.startswith(f"/owner/tiny/resolve/{COMMIT}/"):
                name = path.rsplit("/", 1)[-1]
                asked.append(name)
                headers = {"ETag": f'"{entry(name)["oid"]}"', "X-Repo-Commit": COMMIT}
                self.give(files[name], headers=headers)
            elif "owner/gated" in path:
                self.give({}, 403, {"X-Error-Code": "GatedRepo"})
            else:
                self.give({}, 404, {"X-Error-Code": "RepoNotFound"})

        do_HEAD = do_GET

        def give(self, data, status=200, headers=None):
            body = data if isinstance(data, bytes) else json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked, server
    server.shutdown()


def test_a_hub_model_from_first_fetch_to_offline(hub, tmp_path, monkeypatch):
    address, asked, server = hub
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_ENDPOINT", address)
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    for name in ("HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def load(*names):
        command = [sys.executable, "-c", PROGRAM, *names]
        answer = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert answer.returncode == 0, answer.stderr
        return [json.loads(line) for line in answer.stdout.splitlines()]

    source, gated, unknown = load("owner/tiny", "owner/gated", "owner/nothing")
    assert (source["name"], source["kind"]) == ("owner/tiny", "hub")
    assert source["revision"] == COMMIT
    assert "model.safetensors" in asked
    assert not {"modeling.py", "pytorch_model.bin"} & set(asked)
    assert gated.startswith("owner/gated is gated") and "hf auth login" in gated
    assert "neither a folder here nor a model on the hub" in unknown

    server.shutdown()  # the network is gone
    server.server_close()
    again, missing = load("owner/tiny", "owner/other")
    assert again == source
    assert "the hub cannot be reached" in missing
