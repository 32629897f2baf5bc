"""A GGUF file is read as it is, or refused by the name of what is wrong."""

import struct

import mlx.core as mx
import numpy as np
import pytest

import selfspec
from selfspec.models import ModelError, gguf, tokenizer

NUMBERS = {name: number for number, name in gguf.TYPE_NAMES.items()}


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def header(types, version=3):
    """A header with one value of each shape and one tensor of each type."""
    values = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("llama.block_count") + struct.pack("<II", 4, 1),
        text("llama.eps") + struct.pack("<If", 6, 1e-5),
        text("list.of.numbers") + struct.pack("<IIQ3i", 9, 5, 3, 1, 2, 3),
        text("list.of.text") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b"),
    ]
    tensors = [
        text(f"blk.0.t{i}.weight") + struct.pack("<IQQIQ", 2, 32, 32, NUMBERS[name], 0)
        for i, name in enumerate(types)
    ]
    start = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    return start + b"".join(values) + b"".join(tensors)


@pytest.fixture
def write(tmp_path):
    def write(data):
        path = tmp_path / "some.gguf"
        path.write_bytes(data)
        return path

    return write


def test_types_are_read_from_the_header(write):
    path = write(header(["F32", "Q4_1", "Q6_K", "IQ4_NL"]))
    found, begin = gguf.tensors(path)
    assert 0 <= begin - path.stat().st_size < 32
    assert {tensor.num_weights for tensor in found.values()} == {1024}
    assert {name: tensor.stored_as for name, tensor in found.items()} == {
        "blk.0.t0.weight": "F32",
        "blk.0.t1.weight": "Q4_1",
        "blk.0.t2.weight": "Q6_K",
        "blk.0.t3.weight": "IQ4_NL",
    }


@pytest.mark.parametrize("name", ["Q4_K", "Q6_K", "Q5_0", "IQ2_XXS", "BF16"])
def test_unsupported_quantisation_is_refused_by_name(write, name):
    path = write(header(["F32", name]))
    with pytest.raises(ModelError, match=rf"unsupported GGUF quantisation {name} "):
        selfspec.load(path)


def test_a_type_from_the_future_is_refused(write):
    data = header(["F32"])
    path = write(data[:-12] + struct.pack("<IQ", 999, 0))
    with pytest.raises(ModelError, match="quantisation type 999"):
        gguf.read(path)


def test_every_cut_of_the_header_is_noticed(write):
    data = header(["F32", "Q4_1"])
    for length in range(len(data)):
        with pytest.raises(ModelError):
            gguf.tensors(write(data[:length]))


def test_data_that_is_cut_short_is_noticed_before_it_is_mapped(tmp_path):
    path = tmp_path / "some.gguf"
    weights = {"output_norm.weight": mx.zeros(64)}
    mx.save_gguf(str(path), weights, {"general.architecture": "llama"})
    assert list(gguf.read(path)[0]) == ["model.norm.weight"]
    path.write_bytes(path.read_bytes()[:-32])
    with pytest.raises(ModelError, match="cut short"):
        gguf.read(path)


def test_scaled_rotation_is_refused(tmp_path):
    path = tmp_path / "some.gguf"
    metadata = {"general.architecture": "llama", "llama.rope.scaling.type": "yarn"}
    mx.save_gguf(str(path), {"output_norm.weight": mx.zeros(64)}, metadata)
    with pytest.raises(ModelError, match="rope scaling 'yarn'"):
        gguf.read(path)


def test_what_is_no_gguf_is_refused(write):
    with pytest.raises(ModelError, match="is not a GGUF file"):
        gguf.read(write(b"PK\3\4 and so on"))
    with pytest.raises(ModelError, match="version 1 "):
        gguf.read(write(header(["F32"], version=1)))


def test_another_architecture_is_refused(tmp_path):
    path = tmp_path / "other.gguf"
    mx.save_gguf(
        str(path), {"blk.0.x": mx.zeros((2, 2))}, {"general.architecture": "gemma"}
    )
    with pytest.raises(ModelError, match="architecture gemma is not supported"):
        gguf.read(path)


def test_a_tensor_that_a_plain_llama_lacks_is_refused(tmp_path):
    path = tmp_path / "other.gguf"
    mx.save_gguf(
        str(path), {"rope_freqs.weight": mx.zeros(4)}, {"general.architecture": "llama"}
    )
    with pytest.raises(ModelError, match="'rope_freqs.weight' is not part of"):
        gguf.read(path)


def test_another_tokenizer_is_refused():
    metadata = {"tokenizer.ggml.model": "llama"}
    with pytest.raises(ModelError, match="tokenizer 'llama'"):
        tokenizer.from_gguf(metadata)
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.add_bos_token": mx.array(True),
    }
    with pytest.raises(ModelError, match="bos before every text"):
        tokenizer.from_gguf(metadata)


@pytest.mark.parametrize("bits", [4, 8])
def test_expanding_gives_what_the_packed_weights_mean(bits):
    mx.random.seed(1)
    dense = mx.random.normal((8, 64))
    packed, scales, biases = mx.quantize(dense, 32, bits)
    scales, biases = scales.astype(mx.float16), biases.astype(mx.float16)
    weights = {"a.weight": packed, "a.scales": scales, "a.biases": biases}
    expanded = gguf.expand({**weights, "b.weight": mx.ones(3)}, mx.float32)
    assert sorted(expanded) == ["a.weight", "b.weight"]
    # by hand: integers lowest bits first, times their group's scale, plus its bias
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    integers = (np.array(packed)[..., None] >> shifts) & (2**bits - 1)
    groups = integers.reshape(8, 2, 32).astype(np.float64)
    judge = groups * np.array(scales)[..., None] + np.array(biases)[..., None]
    difference = np.array(expanded["a.weight"]) - judge.reshape(8, 64)
    assert expanded["a.weight"].dtype == mx.float32
    assert np.abs(difference).max() < 1e-6
