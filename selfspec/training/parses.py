"""The task: a request into its nested parse, in the style of TOPv2.

    remind me to call my sister tomorrow
    [IN:CREATE_REMINDER [SL:DATE_TIME tomorrow ] [SL:PERSON_REMINDED me ] [SL:TODO
    [IN:CREATE_CALL [SL:CONTACT [IN:GET_CONTACT [SL:RELATION sister ] ] ] ] ] ]

Words outside slots are left out and slots stand in the order of their names, however
the request was put. A name is several tokens (`[`, `SL:`, `DATE`, `_`, `TIME`), as
it is for a tokenizer of pieces. Texts are drawn from grammar.py with a seed.
A text's combination is its intent, the head that was said and the set of its options; a
fifth of the combinations are held out, so a test text is put together as no training
text is, though each of its parts was seen. The metric is exact match: every token
right, the end too.

    task = make_task(seed=0)
    sample = task.encode(task.test[0])          # ids, and where the answer starts
    task.decode(sample.ids[sample.start :])     # the parse
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from selfspec.training import grammar
from selfspec.training.batches import Sample

PAD, UNKNOWN, END, ASK = "<pad>", "<unk>", "<end>", "=>"
SPECIAL = (PAD, UNKNOWN, END, ASK)
CLOSE = "]"
NUM_TRAIN, NUM_TEST = 16_000, 600
HELD_OUT = 0.2  # share of the combinations that have an option

_NAME = re.compile(r"\[|(?:IN|SL):|_|[A-Z]+")
_PIECE = re.compile(r"\{(\w+)\}|\((\w+)\)|([^\s<]*)<(\w+)>(\S*)|(\S+)")


@dataclass(frozen=True)
class Example:
    """A request, its parse (words divided by spaces), and how it was put together.

    Attributes:
        combination: intent, number of the head, and the options said, sorted.
    """

    utterance: str
    parse: str
    combination: tuple[str, int, tuple[str, ...]]


@dataclass(frozen=True)
class Task:
    """Texts to learn from and held-out ones.

    Attributes:
        vocabulary: of requests and parses; an id is a place in it.
        train, test: examples; no combination is in both.
    """

    vocabulary: tuple[str, ...] = field(repr=False)
    train: tuple[Example, ...] = field(repr=False)
    test: tuple[Example, ...] = field(repr=False)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.vocabulary)}

    @property
    def end(self) -> int:
        """The id that ends a parse."""
        return self._ids[END]

    def prompt(self, utterance: str) -> list[int]:
        """Ids that ask for the parse of a request."""
        unknown = self._ids[UNKNOWN]
        words = [*utterance.split(), ASK]
        return [self._ids.get(word, unknown) for word in words]

    def encode(self, example: Example) -> Sample:
        """The whole text; it is learnt and scored from the parse on."""
        asked = self.prompt(example.utterance)
        answer = [self._ids[token] for token in (*tokens_of(example.parse), END)]
        return Sample((*asked, *answer), start=len(asked))

    def answer(self, example: Example) -> tuple[int, ...]:
        """Ids of the parse, its end included."""
        sample = self.encode(example)
        return sample.ids[sample.start :]

    def decode(self, ids) -> str:
        """Words of ids, up to the end."""
        words = [self.vocabulary[int(index)] for index in ids]
        text = " ".join(words[: words.index(END)] if END in words else words)
        return text.replace("[ ", "[").replace(": ", ":").replace(" _ ", "_")


def tokens_of(parse: str) -> list[str]:
    """A parse's tokens: a bracket's name in pieces, everything else whole."""
    return [
        token
        for word in parse.split()
        for token in (_NAME.findall(word) if word.startswith("[") else [word])
    ]


def make_task(
    seed: int = 0, *, num_train: int = NUM_TRAIN, num_test: int = NUM_TEST
) -> Task:
    """The task of a seed: the same texts on every machine."""
    held_out = held_out_combinations(seed)
    return Task(
        vocabulary=vocabulary(),
        train=_draw(f"{seed}/train", num_train, held_out, False),
        test=_draw(f"{seed}/test", num_test, held_out, True),
    )


def held_out_combinations(seed: int) -> frozenset[tuple]:
    """Combinations that no training text has.

    Each has an option. What is left still has every head, every option of every intent
    and every number of options.
    """
    rng = random.Random(f"{seed}/combinations")
    found = []
    for intent, (heads, options) in grammar.INTENTS.items():
        own = [
            (intent, head, said)
            for head in range(len(heads))
            for said in _subsets(options)
            if said
        ]
        rng.shuffle(own)
        kept, out = list(own), []
        for one in own:
            rest = [other for other in kept if other != one]
            seen = {option for _, _, said in rest for option in said}
            if len(out) < HELD_OUT * len(own) and seen == set(options):
                kept, out = rest, [*out, one]
        found += out
    return frozenset(found)


def vocabulary() -> tuple[str, ...]:
    """Every word that a text of the grammar can have, special ones first."""
    words = {*grammar.BEFORE, *grammar.AFTER}
    texts = [phrase for phrases in grammar.SLOTS.values() for phrase in phrases]
    for heads, options in grammar.INTENTS.values():
        texts += [*heads, *options]
    for text in texts:
        for _, _, before, listed, after, word in _PIECE.findall(text):
            if listed:
                words |= {before + w + after for w in grammar.WORDS[listed].split()}
            elif word:
                words.add(word)
    tags = [f"[IN:{name}" for name in grammar.INTENTS]
    tags += [f"[SL:{name}" for name in grammar.SLOTS]
    pieces = dict.fromkeys(tokens_of(" ".join(tags)))
    return (*SPECIAL, CLOSE, *pieces, *sorted(words))


def _subsets(options: tuple[str, ...]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [()]
    for option in sorted(options):
        found += [(*before, option) for before in found]
    return found


def _draw(
    seed: str, count: int, held_out: frozenset, wanted: bool
) -> tuple[Example, ...]:
    rng = random.Random(seed)
    found: list[Example] = []
    while len(found) < count:
        example = _example(rng)
        if (example.combination in held_out) == wanted:
            found.append(example)
    return tuple(found)


def _example(rng: random.Random) -> Example:
    intent = rng.choice(list(grammar.INTENTS))
    heads, options = grammar.INTENTS[intent]
    head = rng.randrange(len(heads))
    count = max(rng.randint(0, len(options)) for _ in range(2))  # rather many
    said = rng.sample(options, count)
    pieces = [heads[head], *said]
    if said and rng.random() < 0.25:  # "tomorrow remind me to ..."
        pieces.insert(0, pieces.pop())
    words, parse = _intent(intent, " ".join(pieces), rng, depth=1)
    polite = rng.randrange(4)
    if polite == 1:
        words.insert(0, rng.choice(grammar.BEFORE))
    elif polite == 2:
        words.append(rng.choice(grammar.AFTER))
    return Example(
        " ".join(words), " ".join(parse), (intent, head, tuple(sorted(said)))
    )


def _intent(
    name: str, text: str, rng: random.Random, *, depth: int
) -> tuple[list[str], list[str]]:
    """Say an intent's text: (its words, its parse)."""
    words: list[str] = []
    slots: list[tuple[str, list[str]]] = []
    for slot, _, *word in _PIECE.findall(text):
        if slot:
            said, meant = _slot(slot, rng, depth=depth)
            slots.append((slot, [f"[SL:{slot}", *meant, CLOSE]))
            words += said
        else:
            words.append(_word(*word, rng=rng))
    meant = [token for _, parse in sorted(slots) for token in parse]
    return words, [f"[IN:{name}", *meant, CLOSE]


def _slot(name: str, rng: random.Random, *, depth: int) -> tuple[list[str], list[str]]:
    """Say one of a slot's phrases: (its words, what stands in the parse)."""
    phrases: Sequence[str] = grammar.SLOTS[name]
    if depth == grammar.DEEPEST:
        phrases = [phrase for phrase in phrases if "(" not in phrase]
    pieces = _PIECE.findall(rng.choice(phrases))
    if inner := pieces[0][1]:
        head = rng.choice(grammar.INTENTS[inner][0])
        return _intent(inner, head, rng, depth=depth + 1)
    words = [_word(*word, rng=rng) for _, _, *word in pieces]
    return words, words


def _word(before: str, listed: str, after: str, word: str, rng: random.Random) -> str:
    return (
        before + rng.choice(grammar.WORDS[listed].split()) + after if listed else word
    )
