"""Make n-best lists from the objects that decoders return in Python.

Each function returns one ``NbestList`` per utterance, in the decoder's order, best first. Scores are natural logs
summed over tokens. If a decoder divides scores by length, they are multiplied by it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from itertools import pairwise
from typing import Any

from attlm_fairseq.errors import InputError, require_type
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats.json_values.place import Place
from attlm_fairseq.nbest.formats.json_values.records import Reader
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList, are_alike

# the attributes of a decoder's objects that are read
_ATTRIBUTES = (
    "text",
    "score",
    "logit_score",
    "lm_score",
    "tokens",
    "words",
    "ys_log_probs",
    "y_sequence",
    "hypotheses",
    "n_best_hypotheses",
)
_SCORES_OF_TEXTS = ("logit_score", "lm_score")  # transformers' names for pyctcdecode's
COPIES = (
    "the sequences of each utterance are all the same, as Whisper's own generate returns them: call "
    "transformers.GenerationMixin.generate(model, ..), see docs/formats.md#from-a-decoder-in-python"
)


def from_generate(
    outputs: Any,
    processor: Any,
    *,
    num_return_sequences: int,
    prompt_length: int = 0,
    length_penalty: float = 1.0,
    ids: Iterable[str] | None = None,
) -> list[NbestList]:
    """Make lists from the output of Hugging Face's ``model.generate(.., return_dict_in_generate=True)``.

    Whisper's own ``generate`` returns copies of the best sequence of a beam search; a warning says so. Call
    ``transformers.GenerationMixin.generate(model, ..)`` instead.

    Args:
        outputs: the output, with ``sequences`` (B * N, T). ``sequences_scores`` (B * N,) of beam search become the
            score ``score``: a natural log, summed over tokens. It includes what a logits processor adds, such as an LM.
        processor: a processor or tokenizer; its ``batch_decode`` is used.
        num_return_sequences: N, as given to ``generate``.
        prompt_length: number of prompt tokens at the beginning of each sequence, for decoder-only models.
        length_penalty: as given to ``generate``, which divides scores by the number of generated tokens to this power.
        ids: names of the utterances; None: their positions from 0.

    Returns:
        One list per utterance, best hypothesis first.

    Raises:
        InputError: the output has no ``sequences``, their number is not a multiple of N, N is below 1, or the number of ids is not
            that of the utterances.
    """
    if not hasattr(outputs, "sequences"):
        found = f"found {type(outputs).__name__} without sequences"
        raise InputError(f"from_generate: {found}, expected the output of generate(.., return_dict_in_generate=True)")
    sequences = _plain(outputs.sequences)
    if num_return_sequences < 1 or len(sequences) % num_return_sequences:
        raise InputError(f"{len(sequences)} sequences are not {num_return_sequences} for each utterance: see num_return_sequences")
    generated = [tokens[prompt_length:] for tokens in sequences]
    texts = processor.batch_decode(generated, skip_special_tokens=True)
    normalised = _plain(getattr(outputs, "sequences_scores", None))
    hypotheses = [Hypothesis(text) for text in texts]
    if normalised is not None:
        beams = _plain(getattr(outputs, "beam_indices", None))
        lengths = [sum(beam >= 0 for beam in row) for row in beams] if beams is not None else [_length(row, processor) for row in generated]
        for hypothesis, score, length in zip(hypotheses, normalised, lengths, strict=True):
            hypothesis.scores["score"] = score * length**length_penalty
    starts = range(0, len(hypotheses), num_return_sequences)
    if num_return_sequences > 1 and all(sequences[start + i] == sequences[start] for start in starts for i in range(num_return_sequences)):
        note(f"WARNING: from_generate: {COPIES}")
    groups = [hypotheses[start : start + num_return_sequences] for start in starts]
    return _lists(groups, ids)


def _length(tokens: Sequence[int], processor: Any) -> int:
    """Return the number of generated tokens, including the end of sentence but not the padding."""
    tokenizer = getattr(processor, "tokenizer", processor)
    end, filler = (getattr(tokenizer, f"{name}_token_id", None) for name in ("eos", "pad"))
    length = len(tokens)
    while length > 1 and tokens[length - 1] == filler and (filler != end or tokens[length - 2] == end):
        length -= 1
    return length


def from_beams(beams: Any, ids: Iterable[str] | None = None) -> list[NbestList]:
    """Make lists from the beams of CTC decoders.

    Args:
        beams: of pyctcdecode's ``decode_beams`` (one utterance) or ``decode_beams_batch`` (several); the output of
            ``decode`` or ``batch_decode`` of transformers' ``Wav2Vec2ProcessorWithLM`` with ``n_best`` (without it, the
            texts of several utterances look like the beams of one, and are refused only where their scores rise); or
            the hypotheses of torchaudio's or flashlight's lexicon decoder, for one utterance or several.
        ids: names of the utterances; None: their positions from 0.

    Returns:
        One list per utterance, best hypothesis first; an empty text for an utterance without beams. Scores of pyctcdecode:
        ``logit_score`` (acoustic), and ``score``, which also includes the decoder's LM and hotwords (its ``lm_score``). Of
        torchaudio: ``score``.

    Raises:
        InputError: a beam has no text, a score is not a finite number, or the number of ids is not that of the
            utterances.
    """
    if hasattr(beams, "logit_score"):
        return _read(_of_processor(beams), "from_beams", ids)
    require_type("value of beams", beams, Sized, "what the decoder returned")
    beams = list(_sequence("from_beams", beams))
    is_object = len(beams) > 0 and (hasattr(beams[0], "text") or hasattr(beams[0], "_asdict"))
    if beams and not (is_object or isinstance(beams[0], Sized)):
        raise _unknown("from_beams", beams[0], "a beam with a text, or the beams of an utterance")
    one = is_object or (len(beams) > 0 and len(beams[0]) > 0 and isinstance(beams[0][0], str))
    utterances = [beams] if one else beams
    lists = _read(utterances, "from_beams", ids)
    tokens = [_plain(getattr(beam, "tokens", None)) or [] for of_utterance in utterances for beam in of_utterance]
    silent = not any(hypothesis.text.strip() for nbest in lists for hypothesis in nbest.hypotheses)
    if silent and any(len({*of_beam}) > 2 for of_beam in tokens):  # silence has those of silence and blank
        raise InputError(
            "from_beams: no hypothesis has words, all have tokens, as those of a decoder without a lexicon: make texts of their tokens, "
            "and give [(text, score), ..] for each utterance to read_nbest"
        )
    return lists


def _of_processor(output: Any) -> list[Any]:
    """Return the utterances of an output of Wav2Vec2ProcessorWithLM: texts, and lists of scores."""
    texts = _plain(output.text)
    columns = {name: _plain(getattr(output, name, None)) for name in _SCORES_OF_TEXTS}
    if isinstance(texts, str) or not texts:
        raise InputError("from_beams: the output has one text: expected several, decode(.., n_best=N) or batch_decode(.., n_best=N)")
    totals = columns["lm_score"] or []
    if isinstance(texts[0], str) and any(before < after for before, after in pairwise(totals)):  # beams are sorted
        raise InputError("from_beams: the output has one text for each utterance: expected several, batch_decode(.., n_best=N)")
    if isinstance(texts[0], str):  # of one utterance
        _warn_of_several_utterances(texts)
        texts, columns = [texts], {name: column and [column] for name, column in columns.items()}
    return [
        {"texts": found} | {name: column[i] for name, column in columns.items() if column} if found else [] for i, found in enumerate(texts)
    ]


def _warn_of_several_utterances(texts: Sequence[str]) -> None:
    """Log if most texts after the first have hardly a word in common with it."""
    first, *others = texts
    if 2 * sum(are_alike(first, other) is False for other in others) > len(others):
        note(
            "WARNING: from_beams: the texts, read as those of one utterance, have hardly a word in common: for several utterances, "
            "batch_decode(.., n_best=N)"
        )


def from_ctranslate2(
    results: Iterable[Any],
    *,
    decode: Callable[[list[Any]], str] | None = None,
    length_penalty: float = 1.0,
    ids: Iterable[str] | None = None,
) -> list[NbestList]:
    """Make lists from CTranslate2's ``translate_batch``, ``generate_batch`` or ``Whisper.generate``.

    Args:
        results: one per utterance, with ``hypotheses`` or ``sequences`` of tokens, and ``scores``.
        decode: makes text from the tokens of a hypothesis, or from its ids if the results have ``sequences_ids``, as
            Whisper's do: its tokenizer's ``decode``. None joins tokens by spaces; the text steps of an LM can then join
            subwords, but not Whisper's.
        length_penalty: as given to CTranslate2, which divides scores by the number of tokens to this power.
        ids: names of the utterances; None: their positions from 0.

    Returns:
        One list per utterance, best hypothesis first, with the score ``score`` if the results have scores.

    Raises:
        InputError: a result has no tokens of several hypotheses, or the number of ids is not that of the utterances.
    """
    groups = []
    for result in results:
        tokens = _plain(getattr(result, "hypotheses", None) or getattr(result, "sequences", None))
        if not tokens:
            raise _unknown("from_ctranslate2", result, "a result of CTranslate2, with hypotheses or sequences")
        given = _plain(getattr(result, "sequences_ids", None)) or tokens
        texts = [" ".join(words) for words in tokens] if decode is None else [decode(hypothesis) for hypothesis in given]
        hypotheses = [Hypothesis(text) for text in texts]
        for hypothesis, words, score in zip(hypotheses, tokens, _plain(result.scores) or (), strict=False):
            hypothesis.scores["score"] = score * max(1, len(words)) ** length_penalty
        groups.append(hypotheses)
    return _lists(groups, ids)


def from_sherpa(results: Iterable[Any], ids: Iterable[str] | None = None) -> list[NbestList]:
    """Make lists from sherpa-onnx results: from their ``hypotheses``, or from their single text.

    Raises:
        InputError: a result has no text, a score is not a finite number, or the number of ids is not that of the
            utterances.
    """
    values = []
    for result in map(_plain, _sequence("from_sherpa", results)):
        values.append(result["hypotheses"] if isinstance(result, dict) and result.get("hypotheses") else [result])
    return _read(values, "from_sherpa", ids)


def from_nemo(hypotheses: Iterable[Any], ids: Iterable[str] | None = None) -> list[NbestList]:
    """Make lists from NeMo's ``transcribe(.., return_hypotheses=True)`` with ``return_best_hypothesis=False``.

    Raises:
        InputError: a hypothesis has no text, a score is not a finite number, or the number of ids is not that of the
            utterances.
    """
    values = []
    for given in map(_plain, _sequence("from_nemo", hypotheses)):
        inner = given.get("n_best_hypotheses") if isinstance(given, dict) else given
        values.append([_without_lengths(one) for one in inner] if isinstance(inner, list) else [_without_lengths(given)])
    return _read(values, "from_nemo", ids)


def from_vllm(outputs: Iterable[Any], ids: Iterable[str] | None = None) -> list[NbestList]:
    """Make lists from the outputs of vLLM's ``LLM.generate`` or ``LLM.chat``, with ``SamplingParams(n=..)``, or of TensorRT-LLM's.

    Args:
        outputs: one per prompt. ``cumulative_logprob``, which vLLM gives with ``SamplingParams(logprobs=0)``, becomes the score
            ``logprob``: a natural log, summed over tokens.
        ids: names of the utterances; None: their positions from 0.

    Returns:
        One list per prompt, in vLLM's order.

    Raises:
        InputError: an output has no texts, a score is not a finite number, or the number of ids is not that of the outputs.
    """
    values = []
    for output in _sequence("from_vllm", outputs):
        if not isinstance(texts := getattr(output, "outputs", None), list | tuple):
            raise _unknown("from_vllm", output, "a RequestOutput of vLLM, with outputs")
        scores = [getattr(one, "cumulative_logprob", None) for one in texts]
        values.append(
            [{"text": one.text} | ({} if score is None else {"logprob": score}) for one, score in zip(texts, scores, strict=True)]
        )
    return _read(values, "from_vllm", ids)


def from_openai(responses: Iterable[Any], ids: Iterable[str] | None = None) -> list[NbestList]:
    """Make lists from the responses of OpenAI's client, to which servers such as vLLM and llama.cpp answer, too.

    Args:
        responses: of ``completions.create(.., n=..)`` or ``chat.completions.create(.., n=..)``, one per utterance. With ``logprobs``,
            the sum over the tokens becomes the score ``logprob``, a natural log.
        ids: names of the utterances; None: their positions from 0.

    Returns:
        One list per response, in the order of its choices.

    Raises:
        InputError: a response has no texts, such as a refusal, a score is not a finite number, or the number of ids is not that of the
            responses.
    """
    values = []
    for response in _sequence("from_openai", responses):
        value = response.model_dump() if hasattr(response, "model_dump") else response
        if not isinstance(value, Mapping) or not isinstance(value.get("choices"), list):
            raise _unknown("from_openai", response, "a response with choices")
        values.append(value["choices"])
    return _read(values, "from_openai", ids)


def _sequence(name: str, results: Iterable[Any]) -> Iterable[Any]:
    """Return the results. Raises InputError for one object, whose members would be taken for utterances."""
    if isinstance(results, Mapping | str) or not isinstance(results, Iterable):
        raise _unknown(name, results, "a list with one result per utterance")
    return results


def _unknown(name: str, value: object, expected: str) -> InputError:
    return InputError(f"{name}: found a {type(value).__name__}: expected {expected}")


def _without_lengths(hypothesis: Any) -> Any:
    return {key: value for key, value in hypothesis.items() if key in ("text", "score")} if isinstance(hypothesis, dict) else hypothesis


def _read(values: Iterable[Any], name: str, ids: Iterable[str] | None) -> list[NbestList]:
    reader = Reader(name)
    groups: list[list[Hypothesis]] = []
    first = True
    for place, value in enumerate(values):
        if isinstance(value, Sequence) and not isinstance(value, str) and not value:  # silence
            groups.append([Hypothesis("")])
            continue
        groups.append(reader.record(_plain(value), Place(f"{name}: list {place}", "{}", None, 0), first=first).hypotheses)
        first = False
    return _lists(groups, ids)


def _lists(groups: Sequence[list[Hypothesis]], ids: Iterable[str] | None) -> list[NbestList]:
    names = [str(place) for place, _ in enumerate(groups)] if ids is None else list(ids)
    if len(names) != len(groups):
        raise InputError(f"{len(names)} ids, but there are {len(groups)} lists: expected one each")
    for hypotheses in groups:
        for rank, hypothesis in enumerate(hypotheses, 1):
            hypothesis.rank = rank
    return [NbestList(name, hypotheses) for name, hypotheses in zip(names, groups, strict=True)]


def _plain(value: Any) -> Any:
    """Return the value in JSON types: tensors and arrays as lists, objects as their attributes, anything irrelevant as None."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(member) for key, member in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):  # torchaudio's CTCHypothesis
        return _plain(value._asdict())
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    found = {name: _plain(member) for name in _ATTRIBUTES if (member := getattr(value, name, None)) is not None}
    return found or None
