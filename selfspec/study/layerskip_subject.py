"""What the experiment "layerskip" looks at: a model, its texts, and what belongs to it.

The small models that this project trained are asked for parses of held-out utterances,
and have an answer to be compared with and a smaller model beside them. Any other model
is asked the committed prompts, and its exits are scored on the prompts' own text.

    subject = find("layerskip-small", SIZES["smoke"])
    subject.loaded.model, subject.prompts, subject.texts, subject.answers
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from selfspec import models
from selfspec.study import bench
from selfspec.study.exit_scores import Text
from selfspec.study.layerskip_grid import LayerSkipSize
from selfspec.study.prompt_set import Prompt, load_prompts

SMALL = "layerskip-small"  # LD+EE; the default of the experiment
TEXT_TOKENS = 128  # of a prompt's own text, at most this many are scored


@dataclass(frozen=True)
class Subject:
    """A model with everything that is asked of it.

    Attributes:
        loaded: of `models.load`.
        prompts: evaluated.
        held_out: not evaluated, for calibration.
        texts: on which exits are scored.
        eos: end tokens.
        answers: of the prompts in order, end token included; () where there are none.
        small: loads the smaller model of the same training, or None.
        task: what is asked, in words.
        trained: what is known of the model's training; {} for a model from elsewhere.
    """

    loaded: Any = field(repr=False)
    prompts: tuple[Prompt, ...] = field(repr=False)
    held_out: tuple[Prompt, ...] = field(repr=False)
    texts: tuple[Text, ...] = field(repr=False)
    eos: frozenset[int]
    answers: tuple[tuple[int, ...], ...] = field(default=(), repr=False)
    small: Callable[[], Any] | None = field(default=None, repr=False)
    task: str = "prompts"
    trained: Mapping[str, Any] = field(default_factory=dict)

    def ids(self, prompt: Prompt) -> list[int]:
        """The token ids that ask for an answer."""
        return models.render_prompt(self.loaded.tokenizer, prompt.text)

    def words(self, token: int) -> str:
        """What is written for one token."""
        return self.loaded.tokenizer.decode([token])

    def facts(self) -> dict[str, Any]:
        """For the run's provenance."""
        return {
            "task": self.task,
            "trained": dict(self.trained),
            "layers": self.loaded.source.num_layers,
        }


def find(model: str, size: LayerSkipSize, *, prompts_file: str = "") -> Subject:
    """The model by name with what it is asked.

    Raises:
        ModelError: it cannot be loaded.
        StudyError, PromptError: the reader's own prompts cannot be used.
    """
    loaded = models.load(model)
    return on_prompts(loaded, size, prompts_file=prompts_file)


def on_prompts(loaded, size: LayerSkipSize, *, prompts_file: str = "") -> Subject:
    """Any model, asked the committed prompts or the reader's own."""
    there = len(load_prompts("evaluation"))
    prompts = bench.choose_prompts(prompts_file, min(size.num_prompts, there))
    held_out = load_prompts("calibration", min(size.calibration_prompts, there))
    return Subject(
        loaded=loaded,
        prompts=tuple(prompts),
        held_out=tuple(held_out),
        texts=tuple(
            own_text(loaded.tokenizer, prompt) for prompt in prompts[: size.scored]
        ),
        eos=frozenset(loaded.tokenizer.eos_token_ids),
    )


def own_text(tokenizer, prompt: Prompt) -> Text:
    """The prompt's text itself, scored from its second token on."""
    ids = models.encode_text(tokenizer, prompt.text)[:TEXT_TOKENS]
    return Text(tuple(ids), start=1)
