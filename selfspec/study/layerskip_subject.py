"""What the experiment "layerskip" looks at: a model, its texts, and what belongs to it.

The small models that this project trained are asked for parses of held-out utterances,
and have an answer to be compared with and a smaller model beside them. Any other model
is asked the committed prompts, and its exits are scored on the prompts' own text.

    subject = find("layerskip-small", SIZES["smoke"])
    subject.loaded.model, subject.prompts, subject.texts, subject.answers
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from selfspec import models
from selfspec.study import bench, reference, trained
from selfspec.study.exit_scores import Text
from selfspec.study.layerskip_grid import LayerSkipSize
from selfspec.study.prompt_set import Prompt, load_prompts
from selfspec.training import weights
from selfspec.training.parses import Example, make_task

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
    task: str = "the study's prompts"
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
        StudyError, PromptError: a trained model that is not here, or the reader's own
            prompts cannot be used.
    """
    root = reference.find_root()
    name = trained.located(model, root)
    about = weights.trained_as(Path(name)) if Path(name).is_dir() else {}
    if "task" in about and not prompts_file:
        small = root / trained.WEIGHTS / trained.SMALL_DRAFT
        return on_task(weights.load_small(name), size, about, small)
    return on_prompts(models.load(name), size, prompts_file=prompts_file)


def on_task(
    loaded, size: LayerSkipSize, about: Mapping[str, Any], small: Path
) -> Subject:
    """A model of the task, asked held-out utterances of it.

    Args:
        about: of `weights.trained_as`.
        small: folder of the smaller model, if there is one.
    """
    own = about["task"]
    task = make_task(own["seed"], num_train=0, num_test=own["test"])
    most = max(size.num_prompts, size.counted, size.scored)
    last = task.test[len(task.test) - size.calibration_prompts :]
    evaluated = task.test[: min(most, len(task.test) - len(last))]
    samples = [task.encode(example) for example in evaluated]
    other = Path(loaded.source.name).name != trained.SMALL_DRAFT and small.is_dir()
    return Subject(
        loaded=loaded,
        prompts=tuple(_asked(example, i) for i, example in enumerate(evaluated)),
        held_out=tuple(
            _asked(example, len(task.test) - len(last) + i)
            for i, example in enumerate(last)
        ),
        texts=tuple(Text(sample.ids, sample.start) for sample in samples),
        eos=frozenset({task.end}),
        answers=tuple(task.answer(example) for example in evaluated),
        small=(lambda: weights.load_small(small)) if other else None,
        task="for parses of held-out utterances",
        trained=about,
    )


def _asked(example: Example, number: int) -> Prompt:
    """An utterance of the task as a prompt; its domain is its intent."""
    intent = example.combination[0].lower()
    return Prompt(f"parse-{number:04d}", intent, example.utterance, "own")


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
