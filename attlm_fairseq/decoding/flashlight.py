"""The language models inside flashlight-text's decoders, lexicon and lexicon-free.

lms = LogLinearLM.load({"checkpoint_best.pt": 1.0})
lm = FlashlightLM.of_words(lms, word_dictionary)     # in place of KenLM("lm.arpa", word_dictionary)
decoder = LexiconDecoder(options, trie, lm, silence, blank, unknown, [], False)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from flashlight.lib.text.decoder import LM, LMState
from flashlight.lib.text.dictionary import Dictionary

from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.look_ahead_word_lm import UNK_OFFSET, LookAheadWordLM
from attlm_fairseq.decoding.shallow_fusion import ShallowFusion, check_fusion
from attlm_fairseq.decoding.token_fusion import TokenFusion

LEAST = -10_000.0  # in place of -inf, which flashlight adds to another one: the result is nan, and hypotheses are lost


class FlashlightLM(LM):
    """A ShallowFusion as flashlight's LM.

    Scores are natural logarithms, -10,000 at least. Those of flashlight's own KenLM are log10: divide its ``lm_weight`` by 2.303.

    Each score of an utterance is computed once. States and scores are kept until the next utterance starts, about 600 bytes for each
    successor asked for: a lexicon-free decoder with a wide beam asks for millions in a minute of speech. Decoders that work side by side
    need a FlashlightLM each; they may share the fusion. Only the distribution at the sentence start stays, because building the
    lexicon's trie asks for it word by word. The decoder does not keep its LM alive: keep it.
    """

    def __init__(self, fusion: ShallowFusion) -> None:
        """Take a fusion. Raises TypeError for anything else."""
        check_fusion(fusion)
        LM.__init__(self)  # flashlight checks that it was called
        self.fusion = fusion
        # flashlight's states take no attributes, and most of them are never read on from
        self._scored: dict[LMState, tuple[Any, int, float]] = {}  # the fusion's state before the last token, that token, its score
        self._read: dict[LMState, Any] = {}  # the fusion's state, of those that a decoder has gone on from
        self._ended: set[LMState] = set()  # what ``finish`` returned

    @classmethod
    def of_words(cls, lms: LogLinearLM, words: Dictionary | Sequence[str], unk_offset: float = 0.0) -> FlashlightLM:
        """Return the LM for a lexicon decoder that scores words (``is_token_lm`` False): each entry is one word, looked up as it is."""
        return cls(TokenFusion(lms, entries(words), unk_offset=unk_offset))

    @classmethod
    def of_tokens(
        cls, lms: LogLinearLM, tokens: Dictionary | Sequence[str], silent: Collection[str] = (), unk_offset: float = 0.0
    ) -> FlashlightLM:
        """Return the LM for a decoder whose tokens are the LMs' own: lexicon-free, or with a lexicon and ``is_token_lm``.

        The LMs do not see the ``silent`` ones.
        """
        unseen = {silent} if isinstance(silent, str) else set(silent)
        return cls(TokenFusion(lms, [None if token in unseen else token for token in entries(tokens)], unk_offset=unk_offset))

    @classmethod
    def of_spelling(
        cls, lms: LogLinearLM, texts: Sequence[bytes | None], unk_offset: float = UNK_OFFSET, look_ahead: bool = True
    ) -> FlashlightLM:
        """Return the LM for a lexicon-free decoder of letters or subwords, with LMs of words.

        ``texts`` is what each token writes, from ``token_texts``; the other options are those of ``LookAheadWordLM``.
        """
        return cls(LookAheadWordLM(lms, texts, unk_offset=unk_offset, look_ahead=look_ahead))

    def start(self, start_with_nothing: bool) -> LMState:
        """Return the state before the first word, without what the last utterance left. Raises ValueError for ``start_with_nothing``."""
        if start_with_nothing:
            raise ValueError("start_with_nothing: these LMs score sentences from their beginning only")
        self._scored.clear()
        self._read.clear()
        self._ended.clear()
        state = LMState()
        self._read[state] = self.fusion.start()
        return state

    def score(self, state: LMState, usr_token_idx: int) -> tuple[LMState, float]:
        """Return the state after the token, and the token's score.

        Raises:
            IndexError: not a token of the dictionary; the sentence end is ``finish``.
            RuntimeError: a state that ``finish`` returned, or of an utterance before the last ``start``.
        """
        if not 0 <= usr_token_idx < self.fusion.size:
            raise IndexError(f"token {usr_token_idx}: expected 0 to {self.fusion.size - 1}; the sentence end is scored by finish()")
        child = state.child(usr_token_idx)  # the same one each time
        known = self._scored.get(child)
        if known is None:
            before = self._after(state)
            score = max(self.fusion.score(before, usr_token_idx)[0], LEAST)
            known = self._scored[child] = (before, usr_token_idx, score)
        return child, known[2]

    def finish(self, state: LMState) -> tuple[LMState, float]:
        """Return the sentence end, with the end of a word that has begun. Raises RuntimeError as ``score`` does."""
        score = max(self.fusion.end(self._after(state)), LEAST)
        end = state.child(-1)
        self._ended.add(end)
        return end, score

    def _after(self, state: LMState) -> Any:
        """Return the state of the fusion at this node."""
        after = self._read.get(state)
        if after is None:
            if state in self._ended:
                raise RuntimeError("a state after the sentence end: decode_begin() starts the next utterance")
            if state not in self._scored:
                raise RuntimeError(
                    "a state of an earlier utterance: another one was started with this FlashlightLM before that had ended; give each "
                    "decoder a FlashlightLM of its own, which may share the LogLinearLM or the fusion"
                )
            before, token, _ = self._scored[state]
            after = self._read[state] = self.fusion.score(before, token)[1]
        return after


def word_texts(words: Dictionary) -> list[bytes | None]:
    """Return the texts of a lexicon decoder's words, for a ``PhraseFusion``."""
    return [f"{word} ".encode() for word in entries(words)]


def entries(dictionary: Dictionary | Sequence[str]) -> list[str]:
    """Return the entries of a dictionary, or a list of them, in the order of their indexes. Raises TypeError for anything else."""
    if isinstance(dictionary, Sequence) and not isinstance(dictionary, str | bytes):
        return list(dictionary)
    if not hasattr(dictionary, "get_entry"):
        raise TypeError(
            f"the entries of a decoder are {dictionary!r:.80}: expected a list of them, or a Dictionary such as create_word_dict returns"
        )
    return [dictionary.get_entry(index) for index in range(dictionary.index_size())]
