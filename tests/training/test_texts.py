"""The reader's own texts: what may stand on a line, what is learnt, what is held out."""

import json

import pytest

import selfspec
from selfspec.models import render_prompt
from selfspec.training import TrainingError, make_task, texts
from tests.tiny import save_tiny_model


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = save_tiny_model(tmp_path_factory.mktemp("texts") / "tiny")
    return selfspec.load(folder).tokenizer


def written(tmp_path, *records):
    path = tmp_path / "mine.jsonl"
    lines = [r if isinstance(r, str) else json.dumps(r) for r in records]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_text_is_learnt_whole_and_an_answer_alone(tokenizer, tmp_path):
    path = written(
        tmp_path, {"text": "one"}, "", {"prompt": "two", "completion": "three"}
    )
    whole, answered = texts.read_texts(path, tokenizer)
    assert whole.start == 1 and tokenizer.decode(whole.ids[:-1]) == "one"
    assert list(answered.ids[: answered.start]) == render_prompt(tokenizer, "two")
    assert tokenizer.decode(answered.ids[answered.start : -1]) == "three"
    assert {whole.ids[-1], answered.ids[-1]} <= set(tokenizer.eos_token_ids)


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '"text"', '{"text": ""}', '{"text": 1}', '{"prompt": "a"}']
    + ['{"text": "a", "more": "b"}', '{"prompt": "a", "completion": " "}'],
)
def test_a_line_that_cannot_be_used_is_named(line, tokenizer, tmp_path):
    path = written(tmp_path, {"text": "right"}, line)
    with pytest.raises(TrainingError, match="line 2: .*(Way out|write)"):
        texts.read_texts(path, tokenizer)


def test_a_file_that_is_missing_or_too_short_is_refused(tokenizer, tmp_path):
    with pytest.raises(TrainingError, match=r"none\.jsonl cannot be read"):
        texts.read_texts(tmp_path / "none.jsonl", tokenizer)
    with pytest.raises(TrainingError, match="holds 1 texts.*Way out"):
        texts.read_texts(written(tmp_path, {"text": "alone"}), tokenizer)


def test_a_long_text_is_cut_and_a_long_prompt_refused(tokenizer, tmp_path):
    long = "a" * (texts.LONGEST + 9)
    path = written(tmp_path, {"text": long}, {"text": "b"})
    assert len(texts.read_texts(path, tokenizer)[0].ids) == texts.LONGEST
    path = written(tmp_path, {"text": "b"}, {"prompt": long, "completion": "c"})
    with pytest.raises(TrainingError, match="line 2: the prompt alone"):
        texts.read_texts(path, tokenizer)


def test_a_tenth_is_held_out_and_the_same_tenth_again(tokenizer, tmp_path):
    path = written(tmp_path, *({"text": f"text {i}"} for i in range(40)))
    samples = texts.read_texts(path, tokenizer)
    learnt, held_out = texts.split(samples, seed=3)
    assert len(held_out) == 4 and not set(learnt) & set(held_out)
    assert {*learnt, *held_out} == set(samples)
    assert texts.split(samples, seed=3) == (learnt, held_out)
    assert texts.split(samples, seed=4)[1] != held_out


def test_a_parse_of_the_task_is_asked_and_answered_in_any_tokens(tokenizer):
    example = make_task(0, num_train=1, num_test=0).train[0]
    (sample,) = texts.parses_for(tokenizer, [example])
    assert tokenizer.decode(sample.ids[: sample.start]) == example.utterance
    assert tokenizer.decode(sample.ids[sample.start : -1]) == example.parse
