"""The committed prompts are fit to measure with, and a reader's own file is checked."""

import json
import re
from collections import Counter
from dataclasses import FrozenInstanceError

import pytest

from selfspec.study.prompt_set import (
    DOMAINS,
    SETS,
    Prompt,
    PromptError,
    load_prompts,
    read_prompts,
    spread,
)


def words(text):
    return re.findall(r"[a-z0-9]+", text.lower())


def passage(prompt):
    """What a summary prompt asks to be summarised: all but its first paragraph."""
    return prompt.text.partition("\n\n")[2]


@pytest.mark.parametrize("which", SETS)
def test_a_set_has_at_least_16_prompts_spread_evenly_over_the_four_domains(which):
    counts = Counter(prompt.domain for prompt in load_prompts(which))
    assert set(counts) == set(DOMAINS)
    assert len(set(counts.values())) == 1
    assert counts.total() >= 16


def test_evaluation_and_calibration_share_no_prompt_and_no_passage():
    evaluation, calibration = load_prompts("evaluation"), load_prompts("calibration")
    for key in ("id", "text"):
        assert not {getattr(prompt, key) for prompt in evaluation} & {
            getattr(prompt, key) for prompt in calibration
        }
    passages = [
        {passage(prompt) for prompt in prompts if prompt.domain == "summary"}
        for prompts in (evaluation, calibration)
    ]
    assert not passages[0] & passages[1]


def test_no_evaluation_prompt_is_a_calibration_prompt_in_other_words():
    for prompt in load_prompts("evaluation"):
        mine = set(words(passage(prompt) or prompt.text))
        for other in load_prompts("calibration"):
            theirs = set(words(passage(other) or other.text))
            overlap = len(mine & theirs) / len(mine | theirs)
            assert overlap < 0.5, (prompt.id, other.id)


@pytest.mark.parametrize("which", SETS)
def test_every_prompt_is_unique_and_says_where_it_comes_from(which):
    prompts = load_prompts(which)
    assert len({prompt.id for prompt in prompts}) == len(prompts)
    assert len({prompt.text for prompt in prompts}) == len(prompts)
    for prompt in prompts:
        assert prompt.text.strip() == prompt.text != ""
        assert prompt.source == "own" or re.fullmatch(
            r"public domain: .+, .+, 1[789]\d\d", prompt.source
        ), prompt.id


@pytest.mark.parametrize("which", SETS)
def test_quoted_works_are_old_enough_to_be_public_domain(which):
    years = [
        int(prompt.source[-4:])
        for prompt in load_prompts(which)
        if prompt.source != "own"
    ]
    assert years and max(years) < 1920


@pytest.mark.parametrize("which", SETS)
def test_prompts_vary_in_length_as_their_domains_ask(which):
    for prompt in load_prompts(which):
        if prompt.domain == "chat":
            assert 15 <= len(prompt.text.split()) <= 60, prompt.id
        if prompt.domain == "code":
            assert "Python" in prompt.text, prompt.id
        if prompt.domain == "summary":
            assert 120 <= len(passage(prompt).split()) <= 250, prompt.id
        if prompt.domain == "reasoning":
            # A word problem: something to reckon or order, and a call for the steps.
            assert re.search(r"explain|work through|solve|first", prompt.text, re.I)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_a_few_prompts_are_spread_over_the_domains(count):
    counts = Counter(prompt.domain for prompt in load_prompts(count=count))
    assert len(counts) == min(count, len(DOMAINS))
    assert set(counts.values()) == {max(1, count // len(DOMAINS))}


def test_the_same_count_gives_the_same_prompts_and_more_begins_with_fewer():
    assert load_prompts(count=6) == load_prompts(count=6)
    assert load_prompts(count=7)[:6] == load_prompts(count=6)


def test_asking_for_all_by_number_gives_every_prompt_once():
    everything = load_prompts("calibration")
    counted = load_prompts("calibration", count=len(everything))
    assert sorted(counted, key=lambda p: p.id) == sorted(everything, key=lambda p: p.id)


def test_a_domain_that_runs_out_is_passed_over():
    prompts = [
        Prompt("a1", "a", "one", "own"),
        Prompt("a2", "a", "two", "own"),
        Prompt("a3", "a", "three", "own"),
        Prompt("b1", "b", "four", "own"),
    ]
    assert [prompt.id for prompt in spread(prompts, 4)] == ["a1", "b1", "a2", "a3"]


def test_a_count_larger_than_the_set_is_refused_with_both_numbers():
    size = len(load_prompts())
    with pytest.raises(
        PromptError, match=f"evaluation holds {size} prompts, {size + 1}"
    ):
        load_prompts(count=size + 1)


@pytest.mark.parametrize("count", [0, -1, 2.0, "4", True])
def test_a_count_that_is_no_positive_whole_number_is_refused(count):
    with pytest.raises(PromptError, match="whole number from 1, got"):
        load_prompts(count=count)


@pytest.mark.parametrize("which", ["training", "", "../evaluation", None])
def test_an_unknown_set_is_refused_with_the_known_names(which):
    with pytest.raises(PromptError, match="evaluation or calibration"):
        load_prompts(which)


def test_a_prompt_cannot_be_changed_after_it_is_read():
    with pytest.raises(FrozenInstanceError):
        load_prompts(count=1)[0].text = "another"


def test_plain_text_is_one_prompt_a_line_without_empty_lines(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_bytes("First prompt.\r\n\r\n  Zweiter, mit Ümlaut.  \r\n".encode())
    assert read_prompts(file) == [
        Prompt("line-01", "own", "First prompt.", "own"),
        Prompt("line-03", "own", "Zweiter, mit Ümlaut.", "own"),
    ]


def test_a_byte_order_mark_does_not_become_part_of_the_first_prompt(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_bytes(b"\xef\xbb\xbfHello there.\n")
    assert read_prompts(str(file))[0].text == "Hello there."


@pytest.mark.parametrize("name", ["mine.jsonl", "mine.json", "MINE.JSONL"])
def test_json_lines_need_only_a_text_and_keep_what_they_say(tmp_path, name):
    file = tmp_path / name
    full = {"id": "x", "domain": "law", "text": "Two\nlines.", "source": "my notes"}
    # U+2028 ends a line for str.splitlines, but not in JSON lines.
    file.write_text(json.dumps(full) + '\n\n{"text": "a\u2028b"}\n', encoding="utf-8")
    assert read_prompts(file) == [
        Prompt("x", "law", "Two\nlines.", "my notes"),
        Prompt("line-03", "own", "a\u2028b", "own"),
    ]


def test_a_missing_file_a_folder_and_an_empty_file_are_named(tmp_path):
    with pytest.raises(PromptError, match="no prompt file .*nowhere.txt"):
        read_prompts(tmp_path / "nowhere.txt")
    with pytest.raises(PromptError, match="is a folder"):
        read_prompts(tmp_path)
    (tmp_path / "empty.jsonl").write_text(" \n\n")
    with pytest.raises(PromptError, match="empty.jsonl holds no prompts"):
        read_prompts(tmp_path / "empty.jsonl")


def test_a_file_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "latin.txt").write_bytes("caf\xe9 prices".encode("latin-1"))
    with pytest.raises(PromptError, match=r"not UTF-8 text \(byte 3\)"):
        read_prompts(tmp_path / "latin.txt")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a"', "line 2: not JSON"),
        ('"just a text"', "line 2: not an object"),
        ("{}", 'line 2: "text" is missing'),
        ('{"id": "b"}', 'line 2: "text" is missing'),
        ('{"text": "  "}', 'line 2: "text" must be a text'),
        ('{"text": 5}', 'line 2: "text" must be a text'),
        ('{"text": "b", "id": ""}', 'line 2: "id" must be a text'),
        ('{"text": "b", "doman": "x"}', "line 2: unknown key 'doman'.* domain"),
        ('{"text": "b", "id": "first"}', "line 2: the same id 'first' as line 1"),
        ('{"text": "a", "id": "b"}', "line 2: the same text as line 1"),
    ],
)
def test_a_bad_line_is_named_by_its_number_in_one_line(tmp_path, line, message):
    file = tmp_path / "bad.jsonl"
    file.write_text('{"id": "first", "text": "a"}\n' + line + "\n")
    with pytest.raises(PromptError, match=message) as error:
        read_prompts(file)
    assert "\n" not in str(error.value)
