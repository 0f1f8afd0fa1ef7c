"""The language models inside ESPnet's beam search (speech recognition, speech translation, machine translation).

lms = LogLinearLM.load({"checkpoint_best.pt": 1.0})
lm = EspnetLM.of_tokens(lms, token_list)     # of_spelling: LMs of words for a token list of subwords or letters
search = BatchBeamSearch(scorers={**scorers, "lm": lm}, weights={**weights, "lm": 0.3}, token_list=token_list, ...)
search = BeamSearchTransducer(decoder, joint_network, beam_size=5, lm=lm, lm_weight=0.3, search_type="tsd")

Shapes: N hypotheses, L tokens so far, U tokens of the list.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.look_ahead_word_lm import UNK_OFFSET, LookAheadWordLM
from attlm_fairseq.decoding.phrase_fusion import PhraseFusion
from attlm_fairseq.decoding.shallow_fusion import ShallowFusion, check_fusion
from attlm_fairseq.decoding.token_fusion import TokenFusion
from attlm_fairseq.decoding.token_texts import NO_WORD, token_texts
from attlm_fairseq.text.symbols import UNKNOWN

BLANK, UNK = 0, 1  # ESPnet's token lists begin with <blank> and <unk>, and end with <sos/eos>


def _interfaces() -> list[Any]:
    """Return ESPnet's ``BatchScorerInterface``, which its searches require of scorers; none if ESPnet is not installed."""
    found = []
    for module in ("espnet2.legacy.nets.scorer_interface", "espnet.nets.scorer_interface"):
        with contextlib.suppress(ImportError):
            found.append(importlib.import_module(module).BatchScorerInterface)
    return list(dict.fromkeys(found))


class EspnetLM(nn.Module, *_interfaces()):  # type: ignore[misc]  # the bases depend on what is installed
    """A ShallowFusion as a scorer of ESPnet's searches: its ``BatchScorerInterface``, and the LM of its transducers' searches.

    Scores are natural logarithms. The last token of the list starts and ends sentences. ``<blank>`` and ``<unk>`` are scored
    as unknown words; ``<blank>`` is never read. A state is the fusion's state after the tokens that were read, or None before
    the first token. Transducers' searches do not score the sentence end.
    """

    rnn_type = "lstm"  # by this attribute a search for transducers recognises LMs that have states

    def __init__(self, fusion: ShallowFusion) -> None:
        """Use a fusion for ESPnet's token list. Raises TypeError if it is not a ShallowFusion."""
        super().__init__()
        check_fusion(fusion)
        self.fusion = fusion

    @classmethod
    def of_tokens(cls, lms: LogLinearLM, token_list: Sequence[str], unk_offset: float = 0.0) -> EspnetLM:
        """Use LMs whose tokens are those of ESPnet. Raises ValueError if the list lacks ESPnet's special tokens."""
        check_token_list(token_list)
        tokens = [UNKNOWN if token in (BLANK, UNK) else symbol for token, symbol in enumerate(token_list)]
        return cls(TokenFusion(lms, tokens, ends=[len(tokens) - 1], unk_offset=unk_offset))

    @classmethod
    def of_spelling(
        cls, lms: LogLinearLM, token_list: Sequence[str], style: str | None = None, unk_offset: float = UNK_OFFSET, look_ahead: bool = True
    ) -> EspnetLM:
        """Use word LMs for a list of subwords or letters. ``<space>`` is a space. For options see ``token_texts`` and
        ``LookAheadWordLM``.

        Raises:
            ValueError: the list lacks ESPnet's special tokens, or the style in which its tokens mark words is not recognised.
        """
        texts = token_list_texts(token_list, style)
        return cls(LookAheadWordLM(lms, texts, ends=[len(texts) - 1], unk_offset=unk_offset, look_ahead=look_ahead))

    @classmethod
    def of_phrases(cls, path: str | Path, token_list: Sequence[str], style: str | None = None, weight: float = 1.0) -> EspnetLM:
        """Prefer the phrases of a file, see ``PhraseFusion``. Give it to a search next to an LM, as a scorer with a weight of its own.

        Raises:
            InputError: the file is missing, a line is wrong, or the tokens can spell none of the phrases.
            ValueError: as ``of_spelling``.
        """
        texts = token_list_texts(token_list, style)
        return cls(PhraseFusion.load(path, texts, weight, ends=[len(texts) - 1]))

    def init_state(self, x: Tensor) -> None:
        """Return the state before the first token."""
        return

    def zero_state(self) -> None:
        """Return the state before the first token."""
        return

    def batch_init_state(self, x: Tensor) -> None:
        """Return the state before the first token."""
        return

    def select_state(self, state: Sequence[Any] | None, i: int, new_id: int | None = None) -> Any:
        """Return the state of hypothesis ``i`` from the states that ``batch_score`` returned."""
        return None if state is None else state[i]

    def score(self, y: Tensor, state: Any, x: Tensor | None) -> tuple[Tensor, Any]:
        """Return the scores (U,) of the next token after tokens (L,) that begin with ``<sos/eos>``, and the state after them."""
        scores, [after] = self.batch_score(y.unsqueeze(0), [state], None)
        return scores[0], after

    def batch_score(self, ys: Tensor, states: Sequence[Any], xs: Tensor | None) -> tuple[Tensor, list[Any]]:
        """Return the scores (N, U) of the next token after tokens (N, L), and the N states after them.

        ``states`` are the states before the last token. None means that the hypothesis is read from its beginning. Transducers
        give the last token alone, and ``<blank>`` at the beginning.
        """
        after = []
        for tokens, state in zip(ys.tolist(), states, strict=True):
            unread = tokens[1:] if state is None else tokens[-1:]
            state = self.fusion.start() if state is None else state
            for token in filter(None, unread):  # BLANK is 0
                state = self.fusion.score(state, token)[1]
            after.append(state)
        rows = {state: row for row, state in enumerate(dict.fromkeys(after))}  # hypotheses with equal states are computed once
        scores = torch.from_numpy(self.fusion.scores(list(rows)))[[rows[state] for state in after]]
        return scores.to(ys.device, torch.get_default_dtype()), after

    def final_score(self, state: Any) -> float:
        """Return 0, since the sentence end is scored as a token."""
        return 0.0


def token_list_texts(token_list: Sequence[str], style: str | None = None) -> list[bytes | None]:
    """Return the texts of ESPnet's tokens (see ``token_texts``). ``<blank>`` and ``<unk>`` are words that no LM knows.

    Raises:
        ValueError: the list lacks ESPnet's special tokens, or the style in which its tokens mark words is not recognised.
    """
    check_token_list(token_list)
    tokens = [" " if token == "<space>" else token for token in token_list]
    texts = token_texts(tokens, style, special=(BLANK, UNK, len(tokens) - 1))
    texts[BLANK] = texts[UNK] = NO_WORD
    return texts


def check_token_list(token_list: Sequence[str]) -> None:
    """Raise ValueError if ESPnet's special tokens are not at their places in the list."""
    found = [*token_list[:2], *token_list[-1:]]
    if len(token_list) < 3 or found != ["<blank>", UNKNOWN, "<sos/eos>"]:
        raise ValueError(f"ESPnet's token list begins with <blank>, <unk> and ends with <sos/eos>; found {', '.join(map(str, found))}")
