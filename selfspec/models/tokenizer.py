"""Text in, token ids out: the tokenizer of a GGUF file, and prompts.

A control token such as `<|im_start|>` can stand in a text that somebody typed. There it
is text: `encode_text` and `render_prompt` spell it out, so that no text can end a turn
or open one. Whoever wants the control token writes it with `control=True`.
Knows nothing of models' weights.

    tokenizer = from_gguf(metadata)
    ids = render_prompt(tokenizer, "What is the capital of France?")
    encode_text(tokenizer, "<|im_start|>")                  # seven or so ids
    encode_text(tokenizer, "<|im_start|>", control=True)    # one id
"""

from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer, TokenizerWrapper
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from selfspec.models.errors import ModelError

CONTROL = 3  # tokenizer.ggml.token_type of tokens that never come from plain text


def from_gguf(metadata: dict) -> TokenizerWrapper:
    """The tokenizer that a GGUF file describes, wrapped as mlx-lm wraps its own.

    Raises:
        ModelError: the file's tokenizer is not of SmolLM's kind.
    """
    kind = (metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise ModelError(
            f"GGUF tokenizer {kind[0]!r} with pre-tokenizer {kind[1]!r} is not "
            "supported (gpt2 with smollm is). Way out: the same model in MLX format "
            "from the hub"
        )
    add_bos = metadata.get("tokenizer.ggml.add_bos_token")
    if add_bos is not None and add_bos.item():
        raise ModelError(
            "a GGUF tokenizer that puts bos before every text is not supported. "
            "Way out: the same model in MLX format from the hub"
        )
    tokens = metadata["tokenizer.ggml.tokens"]
    types = metadata["tokenizer.ggml.token_type"].tolist()
    merges = [tuple(line.split(" ")) for line in metadata["tokenizer.ggml.merges"]]
    core = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)}, merges=merges
        )
    )
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, type_ in zip(tokens, types, strict=True)
            if type_ == CONTROL
        ]
    )

    def special(key):
        index = metadata.get(f"tokenizer.ggml.{key}_token_id")
        return None if index is None else tokens[int(index.item())]

    fast = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=special("bos"),
        eos_token=special("eos"),
        pad_token=special("padding"),
        unk_token=special("unknown"),
        chat_template=metadata.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
    )
    return TokenizerWrapper(
        fast, BPEStreamingDetokenizer, eos_token_ids=[fast.eos_token_id]
    )


def encode_text(tokenizer, text: str, *, control: bool = False) -> list[int]:
    """Token ids of `text` alone, nothing added before or after it.

    With `control` a control token's spelling becomes that token, otherwise it stays
    text like any other.
    """
    return list(
        tokenizer.encode(
            text, add_special_tokens=False, split_special_tokens=not control
        )
    )


def render_prompt(tokenizer, text: str, *, control: bool = False) -> list[int]:
    """Token ids that ask a model to answer `text`.

    The tokenizer's chat template with `text` as the user's turn; without a template
    the plain text, with whatever the tokenizer puts before a text (often bos).
    """
    if not getattr(tokenizer, "has_chat_template", False):
        ids = encode_text(tokenizer, text, control=control)
        before = list(tokenizer.encode("", add_special_tokens=True))
        eos = getattr(tokenizer, "eos_token_ids", ())
        return [index for index in before if index not in eos] + ids
    ids = _chat(tokenizer, text)
    spelled = [token for token in tokenizer.all_special_tokens if token in text]
    spelled += [token for token in tokenizer.get_added_vocab() if token in text]
    if control or not spelled:
        return ids
    # The template is rendered around a stand-in, and the text encoded by itself.
    rendered = _chat(tokenizer, _STAND_IN, tokenize=False)
    before, _, after = rendered.partition(_STAND_IN)
    return [
        *encode_text(tokenizer, before, control=True),
        *encode_text(tokenizer, text),
        *encode_text(tokenizer, after, control=True),
    ]


def around_the_user(tokenizer) -> tuple[list[int], list[int]]:
    """Token ids before and after a user's turn; without a template only before it."""
    if not getattr(tokenizer, "has_chat_template", False):
        return render_prompt(tokenizer, ""), []
    before, _, after = _chat(tokenizer, _STAND_IN, tokenize=False).partition(_STAND_IN)
    ids = [encode_text(tokenizer, part, control=True) for part in (before, after)]
    return ids[0], ids[1]


_STAND_IN = "selfspec-user-text"


def _chat(tokenizer, text: str, tokenize: bool = True):
    return tokenizer.apply_chat_template(
        [{"role": "user", "content": text}],
        add_generation_prompt=True,
        tokenize=tokenize,
    )
