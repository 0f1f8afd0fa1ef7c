"""The names of JSON keys and table columns, in one table for all formats that have names.

Lists are recognised by these names, not by the tool that wrote them. If one object has several names for the same
thing, the first in the table counts.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

IDS = (
    *("id", "utt", "utt_id", "uttid", "utterance", "utterance_id", "utterance_name", "key", "name", "sample_id", "segment_id"),
    *("audio_filepath", "audio_path", "audio", "file", "filename", "path", "wav", "sentence_id", "sent_id"),
)
CHOICES = "choices"  # of a response of an LLM: hypotheses only if there is no other text
# what holds the hypotheses of an utterance; "text" and the like if their value is a list
HYPOTHESES = (
    *("hyps", "hypotheses", "nbest", "n_best", "nbest_hyps", "beams", "candidates", "alternatives", "texts", "pred_texts", "hyp_texts"),
    *("predictions", "translations", "hypothesis", "sequences", "input", "text", "pred_text", "transcriptions", "NBest", "nBest"),
    CHOICES,
)
# other names like these
_LIKE_HYPOTHESES = re.compile(
    r"(?:.+_)?(?:hyps|hypotheses|n_?best|beams|candidates|alternatives|translations|predictions|outputs)(?:_list|_texts|_with_scores)?"
)
# the text of a hypothesis; the second names are its reference if one of the first is there, or if the hypotheses stand in a list
TEXTS = (
    *("hyp", "hypothesis", "pred_text", "prediction", "predicted", "pred", "hyp_text", "rec_text", "translation", "mt"),
    *("generated_text", "translation_text", "summary_text"),
)
TEXTS_OR_REFERENCES = ("text", "transcription", "transcript", "sentence")
FORMS_OF_TEXT = ("Lexical", "lexical", "Display", "display")  # the text if it has no other name; next to another it is no second text
ALL_TEXTS = (*TEXTS, *TEXTS_OR_REFERENCES, *FORMS_OF_TEXT)
# "text" next to a list of hypotheses is the reference only in a manifest, told by one of these; elsewhere it is the 1-best
MANIFEST = ("pred_text", "audio_filepath", "audio_path")
REFERENCES = (
    *("ref", "refs", "reference", "references", "text_reference", "reference_text", "ref_text", "target", "ground_truth", "truth"),
    *("gold", "label", "output", *TEXTS_OR_REFERENCES),
)
SURE_REFERENCES = ("ref", "reference", "text_reference", "reference_text", "ref_text")  # whatever their value is
SOURCES = ("source", "src", "source_text", "src_text", "source_sentence")  # the sentence that is translated
OF_HYPOTHESES_TOO = ("label", "output")  # of tables: a reference unless it differs within a list, such as what is right or wrong
TOKENS = ("tokens", "sequence", "words")  # a hypothesis' text as a list of its tokens, if it has no other
SEGMENTS = ("segments", "transcription")  # a hypothesis' text in pieces, if it has no other
# what holds the utterances of a document
UTTERANCES = ("utts", "utterances", "results", "items", "samples", "examples", "data", "lists", "recognizedPhrases", "channels")
SCORES = "scores"  # an object in a hypothesis: {name: value}
# how many tokens a hypothesis has: a number, or a list of them
LENGTHS = ("num_tokens", "n_tokens", "token_count", "lengths", "token_ids", "sequences_ids", "y_sequence", "tokens", "sequence")
# natural logs, one per token; see ``json_values.completions`` for objects
TOKEN_LOGPROBS = ("ys_log_probs", "ys_probs", "token_logprobs", "token_log_probs", "logprobs")
SUMS = ("logprobs", "log_probs")  # next to a list of texts without other scores, one number for each of them
LOGPROB = "logprob"  # what a sum over tokens is called
LENGTH_PENALTY = "length_penalty"
CONFIDENCES = "word_confidences"  # of the first hypothesis, written by rescoring
TOTALS = ("total", "total_score")  # what rescoring calls its total, of a hypothesis and in a list next to the hypotheses
RETURNED = ("num_return_sequences", "n_best", "num_hypotheses")  # how many texts of a flat list belong to each utterance
MEASUREMENTS = frozenset(("wer", "cer", "ter", "bleu", "chrf", "comet", "errors", "distance"))  # against the reference
# numbers that say nothing about a hypothesis' probability
NOT_SCORES = frozenset(
    (
        *("rank", "index", "n", "beam", "line", "seek", "start", "end", "begin", "start_time", "end_time", "time", "timestamp", "offset"),
        *(
            "timestamps",
            "times",
            "duration",
            "length",
            "frames",
            "temperature",
            "compression_ratio",
            "no_speech_prob",
            "segment",
            "channel",
            "speaker",
        ),
        *("sample_rate", "num_words", "stop_reason", "finish_reason", *MEASUREMENTS),
        *(LENGTH_PENALTY, *TOTALS, *RETURNED, *LENGTHS, *TOKEN_LOGPROBS, *IDS),
    )
)
# times in any unit, without underscores and capitals: start_ms, decode_time, offsetInTicks
_UNIT = r"(?:in)?(?:ms|msecs?|milliseconds|s|secs?|seconds|frames|samples|ticks)?"
_TIME = re.compile(rf"t?(?:start|end|begin|offset)(?:time|offset)?{_UNIT}|.*(?:time|timestamp|duration|latency){_UNIT}|rtf")
# what no other format needs: the order says it, rescoring makes it again, or scores are read by it
NOT_READ = frozenset(("rank", "index", *TOTALS, LENGTH_PENALTY, *RETURNED))
_COST = re.compile(  # also in the plural, for columns next to a list of texts
    r"(?!(?:.+_)?(?:neg|negative|minus|inv|inverse)_)(?:.+_)?(?:costs?|nlls?|loss(?:es)?|ppls?|perplexit(?:y|ies))|"
    r"(?:.+_)?neg(?:ative)?_?log_?(?:ps?|probs?|probabilit(?:y|ies)|likelihoods?)"
)
_SCORE_LIKE = re.compile(r"score|prob|cost|nll|loss|likelihood|confidence")
# a list of numbers of such a name may have one for each word, token, .. of one text
_OF_PARTS = re.compile(r"word|token|char|letter|piece|phone|frame|step|segment|lang|speech|transition|positional")
_MEASURED = re.compile(  # names of the same with more words; what is predicted without the reference has others
    r"(?:hyp_|word_|char_|sentence_)?(?:wer|cer|ter|bleu|chrf)(?:_percent|_rate|%)?|(?:num_|n_|word_|char_)errors|(?:word_|char_)?error_rate|"
    r"edit_distance|levenshtein(?:_distance)?"
)
_SQUASHED_NOT_SCORES = frozenset(name.replace("_", "").lower() for name in NOT_SCORES)  # numTokens, WER
_COUNTER = re.compile(r"(?:unnamed:_?\d+)?|(?:.+_)?(?:idx|index|id|no|nr|row)|#")  # without a name: the index of pandas' to_csv
COUNTED_LISTS = 10  # by so many lists at the beginning of a file it is decided which numbers count the hypotheses
FEWEST_LISTS = 3  # of several hypotheses, by which numbers of any other name are taken to count them


@dataclass(frozen=True)
class Normalised:
    """A score that its decoder has divided by (tokens + ``unlisted``) ** penalty.

    ``sum_name`` is what the sum is called. ``unlisted``: tokens that count and are not in the file, such as the
    sentence end. ``has_penalty``: the penalty is ``length_penalty`` of the file, else 1; without it always 1.
    """

    sum_name: str
    unlisted: int = 0
    has_penalty: bool = False


_WHISPER = Normalised(LOGPROB, unlisted=1)  # Whisper and faster-whisper divide by the number of tokens and one more for the end
_GENERATE = Normalised("score", has_penalty=True)  # Hugging Face: sum / generated tokens ** length_penalty
NORMALISED = {
    **dict.fromkeys(("avg_logprob", "avg_log_prob", "mean_logprob", "mean_log_prob", "avg_logprobs"), _WHISPER),
    **dict.fromkeys(("sequences_scores", "sequences_score", "sequence_score"), _GENERATE),
    **dict.fromkeys(("avg_score", "mean_score", "score_mean", "normalized_score", "normalised_score"), Normalised("score")),
}
CTRANSLATE2 = Normalised("score", has_penalty=True)  # "scores" of hypotheses that are lists of tokens, under one of these names
OF_CTRANSLATE2 = ("hypotheses", "sequences")


def like_hypotheses(members: Mapping[str, object]) -> list[str]:
    """Return the lists of an object that has no list under HYPOTHESES, but names like these, such as ``nbest_list``.

    None are looked for next to a text that is surely a hypothesis, nor in an object without id, text or reference, which may be
    lists by id.
    """
    if any(isinstance(members.get(key), str) for key in TEXTS) or members.keys().isdisjoint((*IDS, *REFERENCES)):
        return []
    return [key for key, value in members.items() if isinstance(value, list) and _LIKE_HYPOTHESES.fullmatch(key.lower())]


def is_of_sockeye(members: Container[str]) -> bool:
    """Return whether an object is Sockeye's, whose ``score`` and ``scores`` are negative log-probabilities."""
    return "sentence_id" in members and "translation" in members


def name_of(key: str, others: Container[str]) -> str:
    """Return what the score under a key is called; ``others`` are the keys next to it.

    pyctcdecode calls the sum of ``logit_score`` and what its LM adds ``lm_score``: that is the decoder's score.
    """
    return "score" if key == SCORES or (key == "lm_score" and "logit_score" in others and "score" not in others) else key


def is_reference(key: str, container: str | None, others: Container[str]) -> bool:
    """Return whether a text under one of REFERENCES is that; ``container`` is the key of the hypotheses next to it, if they are a list."""
    if container is None:
        return True
    return container == "input" if key == "output" else key != "text" or any(name in others for name in MANIFEST)


def is_measurement(key: str) -> bool:
    """Return whether a number of this name, in any case, was probably measured against the reference, which no weight may know."""
    spelled = of_header(key)
    return spelled in MEASUREMENTS or _MEASURED.fullmatch(spelled) is not None


def is_score(key: str) -> bool:
    """Return whether a number of this name, in any case, is a score of its hypothesis."""
    squashed = of_header(key).replace("_", "")
    return squashed not in _SQUASHED_NOT_SCORES and not _TIME.fullmatch(squashed) and not is_measurement(key)


def is_score_column(key: str) -> bool:
    """Return whether a list of numbers of this name, as many as hypotheses, holds their scores: surer names than for single numbers."""
    return is_score(key) and (_SCORE_LIKE.search(key.lower()) is not None or is_cost(of_header(key)))


def is_list_of_scores(key: str) -> bool:
    """Return whether a list of numbers of this name next to the hypotheses can only have one for each hypothesis."""
    return is_score_column(key) and _OF_PARTS.search(key.lower()) is None


@lru_cache(maxsize=1024)
def is_cost(key: str) -> bool:
    """Return whether smaller numbers of this name, as ``of_header`` returns it, are better. They are read with the other sign."""
    return _COST.fullmatch(key) is not None


def is_counter(key: str) -> bool:
    """Return whether numbers of this name, as ``of_header`` returns it, count something: perhaps the rows of the whole file."""
    return _COUNTER.fullmatch(key) is not None


def is_count(key: str, lists: Sequence[Sequence[object]]) -> bool:
    """Return whether the numbers of this name count hypotheses or rows: as scores they would turn the lists upside down.

    They are whole and written without a point (scores that this package writes have one). Under the name of a counter, or
    none, they are counts whatever they are. Under other names they are consecutive within each list, from 0 or 1 in the first,
    in FEWEST_LISTS lists. The order does not matter, so that a reordered list is read like before.

    Args:
        key: the name as ``of_header`` returns it.
        lists: the numbers in each of the first lists of the file.
    """
    filled = [sorted(value for value in values if type(value) is int) for values in lists if values]
    if not filled or is_score_column(key) or sum(map(len, filled)) < sum(map(len, lists)) or any(values[0] < 0 for values in filled):
        return False
    if is_counter(key):
        return True
    consecutive = all(values == list(range(values[0], values[0] + len(values))) for values in filled)
    return consecutive and filled[0][0] in (0, 1) and sum(len(values) > 1 for values in filled) >= FEWEST_LISTS


def as_member(name: str) -> str:
    """Return the key under which a score is written, so that it is read back as a score of that value."""
    spelled = of_header(name)
    taken = spelled in NORMALISED or is_cost(spelled) or name == SCORES or name in (*ALL_TEXTS, *REFERENCES, *HYPOTHESES)
    return name if is_score(name) and not taken else _as_score(name)


def _as_score(name: str) -> str:
    new = f"{name}_score"
    return new if is_score(new) else f"{new}2"


@lru_cache(maxsize=1024)
def of_header(name: str) -> str:
    """Return the name of a table's column as these names are written: ``Utterance ID`` is ``utterance_id``."""
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def as_header(name: str) -> str:
    """Return the name of the column in which a score is written, so that it is read back as a score of that value."""
    return name if as_member(of_header(name)) == of_header(name) else _as_score(name)


def as_column(name: str) -> str:
    """Return the key under which the scores of an LM are written next to a list of texts."""
    return name if is_score_column(name) and as_member(name) == name else _as_score(name)
