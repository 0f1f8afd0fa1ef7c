"""What a causal LM of Hugging Face reads around each sentence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SentenceFrame:
    """The tokens and the text around each sentence. A sentence in context has them once, around the whole context.

    Attributes:
        start: the token before a sentence; None: the tokenizer's bos token, or else its eos token.
        end: the token that ends a sentence; ``none``: the end is not scored; None: the tokenizer's eos token, or else ``none``.
        prompt: text after the start token, which is given and not scored; special tokens in it are read as such. A line end follows it,
            unless it ends with one or with a special token. None: no text.
    """

    start: str | None = None
    end: str | None = None
    prompt: str | None = None


DEFAULT_FRAME = SentenceFrame()
