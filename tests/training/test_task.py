"""The task: nested parses whose combinations are held out, the same for a seed."""

import pytest

from selfspec.training import grammar, make_task, parses


@pytest.fixture(scope="module")
def large():
    return make_task(0, num_train=3000, num_test=400)


def tree(parse):
    """Nested lists of a parse, so that a bracket in the wrong place is seen."""
    stack = [[]]
    for word in parse.split():
        if word.startswith("["):
            stack.append([word])
        elif word == parses.CLOSE:
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(word)
    (whole,) = stack
    assert len(whole) == 1
    return whole[0]


def depth(node):
    inner = max((depth(c) for c in node if isinstance(c, list)), default=0)
    return inner + node[0].startswith("[IN:")


def test_the_grammar_is_as_rich_as_it_says(large):
    assert len(grammar.INTENTS) >= 12 and len(grammar.SLOTS) >= 25
    words = [w for w in large.vocabulary if w.isalpha() and w.islower()]
    assert len(words) >= 300
    assert max(depth(tree(e.parse)) for e in large.train) == grammar.DEEPEST == 3


def test_every_name_in_the_grammar_is_defined_and_used():
    texts = [t for heads, options in grammar.INTENTS.values() for t in heads + options]
    texts += [t for phrases in grammar.SLOTS.values() for t in phrases]
    found = [m.groups() for t in texts for m in parses._PIECE.finditer(t)]
    assert {m[0] for m in found if m[0]} == set(grammar.SLOTS)
    assert {m[1] for m in found if m[1]} <= set(grammar.INTENTS)
    assert {m[3] for m in found if m[3]} == set(grammar.WORDS)


def test_a_parse_is_a_tree_of_intents_and_slots_by_turns(large):
    def check(intent):
        assert intent[0].startswith("[IN:")
        assert [slot[0] for slot in intent[1:]] == sorted(s[0] for s in intent[1:])
        for slot in intent[1:]:
            assert slot[0].startswith("[SL:") and len(slot) > 1
            if isinstance(slot[1], list):
                assert len(slot) == 2
                check(slot[1])
            else:
                assert all(isinstance(word, str) for word in slot)

    for example in large.test:
        check(tree(example.parse))


def test_words_of_a_slot_stand_together_in_the_request(large):
    def leaves(node):
        below = [child for child in node[1:] if isinstance(child, list)]
        return sum(map(leaves, below), []) if below else [" ".join(node[1:])]

    for example in large.test:
        found = leaves(tree(example.parse))
        assert found and all(words in example.utterance for words in found)


def test_a_name_is_several_tokens_and_is_put_together_again(large):
    tokens = parses.tokens_of("[IN:GET_CONTACT [SL:ROOM attic ] ]")
    assert " ".join(tokens) == "[ IN: GET _ CONTACT [ SL: ROOM attic ] ]"
    for example in large.test:
        assert large.decode(large.answer(example)) == example.parse


def test_no_combination_is_on_both_sides_and_every_part_was_seen(large):
    train = {e.combination for e in large.train}
    test = {e.combination for e in large.test}
    held_out = parses.held_out_combinations(0)
    assert test <= held_out and not train & held_out
    parts = {(intent, option) for intent, _, said in train for option in said}
    assert {(i, option) for i, _, said in test for option in said} <= parts
    assert {c[:2] for c in test} <= {c[:2] for c in train}


def test_a_fifth_of_the_combinations_is_held_out():
    whole = sum(
        len(heads) * (2 ** len(options) - 1)
        for heads, options in grammar.INTENTS.values()
    )
    share = len(parses.held_out_combinations(0)) / whole
    assert share == pytest.approx(parses.HELD_OUT, abs=0.05)


def test_a_seed_makes_the_same_texts_and_another_seed_others():
    few = dict(num_train=20, num_test=10)
    first, again, other = (make_task(seed, **few) for seed in (3, 3, 4))
    assert first.train == again.train and first.test == again.test
    assert first.train != other.train and first.vocabulary == other.vocabulary


def test_fewer_texts_are_the_first_of_more(large):
    few = make_task(0, num_train=5, num_test=7)
    assert few.train == large.train[:5] and few.test == large.test[:7]


def test_ids_say_the_whole_text_and_are_scored_from_the_parse_on(large):
    example = large.test[0]
    sample = large.encode(example)
    assert sample.start == len(large.prompt(example.utterance))
    assert large.decode(sample.ids[: sample.start]) == f"{example.utterance} =>"
    assert large.decode(sample.ids[sample.start :]) == example.parse
    assert sample.ids[sample.start :] == large.answer(example)
    assert sample.ids[-1] == large.end
    assert large.prompt("nosuchword")[0] == large.vocabulary.index(parses.UNKNOWN)
