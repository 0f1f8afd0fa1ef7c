"""One rich sample a format, and short ways to read and write text."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.nbest.formats import find_format
from attlm_fairseq.nbest.nbest_list import NbestList

MOSES = """\
0 ||| das ist gut ||| LM0= -12.3 TM0= -1.3 -2.1 ||| -5.61
0 |||  das  ist\tgut  ||| LM0= -1.5e+01 TM0= -1.0 -2.5 ||| -9.5e-05
0 ||| ||| LM0= -3 TM0= -4 -5 ||| -6
7 ||| nur eine ||| LM0= -1 TM0= -2 -3 ||| -4
"""
MARIAN = """\
0 ||| a b ||| 0-0 1-1 ||| WordScores= -0.1 -0.2 -0.3 ||| F0= -0.6 ||| -0.2
0 ||| a ||| 0-0 ||| WordScores= -0.4 -0.5 ||| F0= -0.9 ||| -0.45
"""
LEGACY = "0||| a b ||| d: 0 -1.5 lm: -37.2 w: -16 ||| -5.5 ||| 0-0 1-1\n0||| a ||| d: 0 -1 lm: -30 w: -8 ||| -6.5 ||| 0-0\n"
JOSHUA = "0 ||| a b ||| lm_0=-27.5 tm_pt_0=-0.000 OOVPenalty=2.000 ||| -227.217\n0 ||| b ||| lm_0=-28.5 tm_pt_0=-1 OOVPenalty=0 ||| -228\n"
UNNAMED = "0 ||| a b ||| -7.158 -0.090 0 ||| -3.25\n1 ||| b ||| -8 -0.5 1 ||| -4\n"
FAIRSEQ = """\
2021-03-04 10:00:00 | INFO | fairseq_cli.generate | loading model(s) from model.pt
S-12\tthat is good
T-12\tdas ist <<unk>>
H-12\t-0.4301\tdas ist gut
D-12\t-0.4301\tDas ist gut.
P-12\t-0.51 -0.40 -0.38 -0.25
H-12\t-0.75\tdas gut
D-12\t-0.75\tDas gut.
P-12\t-1 -0.5 -9.5e-05
2021-03-04 10:00:01 | INFO | fairseq_cli.generate | a line between
S-3\t
T-3\t
H-3\t-9.5e-05\t
D-3\t-9.5e-05\t
P-3\t-9.5e-05
2021-03-04 10:00:02 | INFO | fairseq_cli.generate | NOTE: hypothesis and token scores are output in base 2
Generate test with beam=5: BLEU4 = 35.73, 67.8/42.2/28.8/20.2 (BP=0.978, ratio=0.978, syslen=6, reflen=7)
"""
HYPORADISE = """\
[{"id": "u1", "input": ["a b", "a", ""], "output": "a b c", "am_score": [-0.5, -0.25, -1e-3]},
 {"input": ["\\u00e9t\\u00e9", "\u00e9t\u00e9"],  "output":"", "am_score": [-1, -2], "input1": "x", "extra": {"b": [1, 2], "a": null}}
]
"""
HYPORADISE_PRETTY = """\
[
  {
    "input": [
      "one two",
      "one too"
    ],
    "output": "one two",
    "n": 2
  }
]"""
JSONL = """\
{"id": "u1", "ref": "a b", "hyps": [{"text": "a b", "scores": {"am": -1.25, "lm": -3}, "words": [1, 2]}, {"text": ""}], "x": 1}
{"id": 7,"ref":["a","b"],"hyps":[{"text":"a","scores":{}},{"scores":{"am":-0.1},"text":"a"},{"text":"b\\n"}]}

{"hyps": [{"text": "only"}]}
"""
MLM = """\
{
  "utt1": {
    "hyp_1": {"score": -1.234, "text": "a b"},
    "hyp_2": {"score": -2, "text": "", "lm": -7.5},
    "ref": "a b"
  },
  "utt 2": {"ref": "", "hyp_1": {"text": "x", "score": 0.5, "tokens": ["x"]}}
}
"""
PLAIN_BLOCKS = "a b\na\n\nc d\nc d\n\n\n e\n"
PLAIN_IN_STEP = "a b\na\n\nc d\n"
PLAIN_IDS = "u1\ta b\nu1\t\nu2\tc d\nu2\tc\n"
SRILM = "-123.5 -20.25 3 a b c\n-124.0 -19 2 a b\n-130 -1.5 0\n"
SRILM_MARKED = "-123.5 -20.25 3 <s> a b c </s>\n-124.0 -19 4 <s>  a b </s> \n-130 -1.5 0 <s> </s>\n"
NEMO = 'a b\t-12.5\nnull\t-13.25\n\t-9.5e-05\n"c\t-1.0\n'
KALDI = "spk-utt-1 oh yeah\nspk-utt-2 oh\nspk-utt-3\nspk-utu-1 yes 1\n"
# JSON of other tools, and of scripts around them
GENERATE = """\
{"id": "u1", "texts": ["a b", "a"], "sequences_scores": [-0.1, -0.2], "num_tokens": [3, 2], "reference": "a b"}
{"id": "u2", "texts": ["c d", "c"], "sequences_scores": [-0.3, -0.5], "num_tokens": [3, 2], "reference": "c"}
"""
GENERATE_ONE = '{"texts": ["a b", "a"], "sequences_scores": [-0.1, -0.2]}'
GENERATE_BATCH = '{"texts": [["a b", "a"], ["c d", "c e"]], "sequences_scores": [[-0.1, -0.2], [-0.3, -0.5]], "references": ["a", "c"]}'
GENERATE_FLAT = '{"texts": ["a b", "a", "c d", "c e"], "sequences_scores": [-0.1, -0.2, -0.3, -0.5], "num_return_sequences": 2}'
LISTS = '[["a b", "a"], ["c d", "c"]]'
PAIRS = '[[["a b", -1.5], ["a", -2]], [["c d", -1], ["c", -3]]]'
BY_ID = """\
{"u1": [{"text": "a b", "avg_logprob": -0.1, "tokens": [1,2,3]}, {"text": "a", "avg_logprob": -0.2, "tokens": [1,2]}],
 "u2": [{"text": "c d", "avg_logprob": -0.3, "tokens": [5]}]}
"""
PYCTCDECODE = '[[["a b", null, [["a", [0, 3]], ["b", [4, 5]]], -1.5, -3.25], ["a", null, [["a", [0, 3]]], -2.5, -4.25]]]'
MANIFEST = """\
{"audio_filepath": "/d/u1.wav", "duration": 1.5, "text": "a b", "pred_text": "a b", "beams": [["a b", -3.5], ["a", -4.5]]}
{"audio_filepath": "/d/u2.wav", "duration": 1.5, "text": "c", "pred_text": "c d", "beams": [["c d", -3.5], ["c", -4.5]]}
"""
REFERENCE_NBEST = '[{"reference": "a b", "nbest": ["a b", "a"]}, {"reference": "c", "nbest": ["c d", "c"]}]'
WHISPER = """\
{"text": " a b. c d.", "segments": [
  {"id": 0, "seek": 0, "start": 0.0, "end": 2.0, "text": " a b.", "tokens": [1,2,3], "temperature": 0.0, "avg_logprob": -0.25,
   "compression_ratio": 1.1, "no_speech_prob": 0.01},
  {"id": 1, "seek": 0, "start": 2.0, "end": 3.0, "text": " c d.", "tokens": [1,2,3], "avg_logprob": -0.25}], "language": "en"}
"""
WHISPER_CPP = """\
{
\t"systeminfo": "AVX = 1",
\t"result": {"language": "en"},
\t"transcription": [
{"timestamps": {"from": "00", "to": "01"}, "offsets": {"from": 0, "to": 100}, "text": " And so",
 "tokens": [{"text": " And", "id": 3, "p": 0.5}, {"text": " so", "id": 5, "p": 0.25}]},
{"text": " my fellow", "tokens": [{"text": " my", "id": 7, "p": 0.5}, {"text": " fellow", "id": 9, "p": 0.5}]}
]}
"""
FASTER_WHISPER = '[{"id": 1, "seek": 0, "start": 0.0, "end": 2.0, "text": " a b", "tokens": [1, 2], "avg_logprob": -0.25, "words": null}]'
CTRANSLATE2 = '[{"hypotheses": [["\u2581a", "\u2581b"], ["\u2581a"]], "scores": [-0.25, -0.5]}]'
SHERPA = (
    '{"id": "u1", "text": "A B", "hypotheses": ['
    '{"text": "A B", "tokens": ["A", " B"], "timestamps": [0.1, 0.2], "ys_log_probs": [-0.5, -0.25], "score": -0.75}, '
    '{"text": "A", "tokens": ["A"], "ys_log_probs": [-0.5], "score": -1.5}]}\n'
)
ROWS = """\
{"id": "u1", "text": "a b", "score": -1}
{"id": "u1", "text": "a", "score": -2}
{"id": "u2", "text": "c", "score": -3}
"""
ROW_ARRAY = """\
[{"utt": "u1", "hyp": "a b", "score": -1, "ref": "a"}, {"utt": "u1", "hyp": "a", "score": -2, "ref": "a"},
 {"utt": "u2", "hyp": "c", "score": -3, "ref": "c"}]"""
WRAPPED = """\
{"model": "x", "results": [
  {"id": "u1", "alternatives": [{"text": "a b", "confidence": 0.5}, {"text": "a", "confidence": 0.25}]}
], "n": 1}
"""
WAV2VEC2 = """\
{"text": [["a b", "a"], ["c d", "c"]], "logit_score": [[-1, -2], [-3, -4]],
 "lm_score": [[-5, -6], [-7, -8]], "word_offsets": null}"""
AZURE = """\
{"Id": "1f", "RecognitionStatus": "Success", "DisplayText": "A b.", "Offset": 10, "Duration": 9, "NBest": [
  {"Confidence": 0.75, "Lexical": "a b", "ITN": "a b", "MaskedITN": "a b", "Display": "A b."},
  {"Confidence": 0.5, "Lexical": "a", "ITN": "a", "MaskedITN": "a", "Display": "A."}]}
"""
AZURE_BATCH = """\
{"source": "u1.wav", "combinedRecognizedPhrases": [{"channel": 0, "lexical": "a b"}], "recognizedPhrases": [
  {"channel": 0, "offset": "PT0.1S", "nBest": [
    {"confidence": 0.75, "lexical": "a b", "display": "A b."}, {"confidence": 0.5, "lexical": "a", "display": "A."}]},
  {"channel": 0, "offset": "PT1S", "nBest": [{"confidence": 0.25, "lexical": "c", "display": "C."}]}]}
"""
AMAZON = """\
{"jobName": "x", "results": {"transcripts": [{"transcript": "a b c"}], "items": [
    {"start_time": "0.1", "alternatives": [{"confidence": "0.9", "content": "a"}], "type": "pronunciation"}],
  "segments": [
    {"start_time": "0.1", "alternatives": [{"transcript": "a b", "items": [{"content": "a"}]}, {"transcript": "a", "items": []}]},
    {"start_time": "1.5", "alternatives": [{"transcript": "c", "items": []}]}]}, "status": "COMPLETED"}
"""
DEEPGRAM = """\
{"metadata": {"request_id": "x"}, "results": {"channels": [{"alternatives": [
  {"transcript": "a b", "confidence": 0.75, "words": [{"word": "a", "start": 0.1}]}, {"transcript": "a", "confidence": 0.5}]}]}}
"""
SOCKEYE = """\
{"sentence_id": 1, "translation": "a b", "score": 0.25, "translations": ["a b", "a"], "scores": [[0.25], [0.5]]}
{"sentence_id": 2, "translation": "c", "score": 0.125, "translations": ["c", "c d"], "scores": [0.125, 0.75]}
"""
TORCHAUDIO = '[[{"words": ["a", "b"], "tokens": [1, 2], "score": -1.5, "timesteps": [0, 3]}, {"words": ["a"], "tokens": [1], "score": -2}]]'
COMPLETIONS = """\
{"id": "cmpl-1", "object": "text_completion", "created": 7, "choices": [
  {"index": 0, "text": "a b", "logprobs": {"text_offset": [0, 2], "token_logprobs": [-0.5, -0.25], "tokens": ["a", " b"]},
   "stop_reason": 9},
  {"index": 1, "text": "a", "logprobs": {"text_offset": [0], "token_logprobs": [-1.5], "tokens": ["a"]}, "stop_reason": null}],
 "usage": {"total_tokens": 9}}
"""
CHAT = """\
{"id": "chatcmpl-1", "created": 7, "choices": [{"index": 0, "message": {"role": "assistant", "content": "a b"}, "finish_reason": "stop", \
"logprobs": {"content": [{"token": "a", "logprob": -0.5, "top_logprobs": []}, {"token": " b", "logprob": -0.25}]}}, \
{"index": 1, "message": {"role": "assistant", "content": ""}, "logprobs": {"content": [{"token": "", "logprob": -3}]}}]}
{"id": "chatcmpl-2", "created": 7, "choices": [{"index": 0, "message": {"role": "assistant", "content": "c"}, "logprobs": null}]}
"""
OTHER_NAMES = """\
{"hypothesis": ["a b", "a"], "transcription": "a b c"}
{"hypothesis": ["d", "d e"], "transcription": "d"}
"""
CSV = 'id,hyp,score,ref,duration\nu1,"a, b",-1.5,a b,1.0\nu1,"a ""q""",-2.5,a b,1.0\nu2,c,-3.5,c,2.0\n'
TSV_WITHOUT_HEADER = "u1\ta b\t-1.5\nu1\t7\t-2.5\nu2\tc\t-3\n"
TSV_SCORE_FIRST = "u1\t-1.5\ta b\n\nu1\t-2.5\ta\nu2\t-3\tc\n"
TSV = "utt\ttext\tscore\nu1\ta b\t-1.5\nu1\ta\t-2.5\n"
ICEFALL_TIMES = "u-1:\tref=['A']\nu-1:\ttimestamp_ref=[]\nu-1:\thyp=['A', 'B']\nu-1:\ttimestamp_hyp=[0.04, 0.4]\n"
ICEFALL_TIMES += "\nu-2:\tref=['C']\nu-2:\thyp=['C']\nu-2:\ttimestamp_hyp=[0.04]\nu-2:\thyp=[]\nu-2:\ttimestamp_hyp=[]\n"
ICEFALL = "u-1:\tref=['A', 'B']\nu-1:\thyp=['A', \"IT'S\"]\nu-2:\tref=['C']\nu-2:\thyp=[]\n"
CTM = """\
;; a comment
u-1 1 0.50 0.20 cat 0.9
u-1 1 0.10 0.30 the 0.875
;; another
u-2 A 1 2. hello NA
"""
CTM_TYPES = "u1 1 0.5 0.25 [noise] NA non-lex spk\nu1 1 0.75 1 a 1e-05 lex spk\n;; within\nu1 1 2 0.5 b 1 un-lex\nu2 1 0 1 c 0.5\n;; end\n"

JSON = [
    *(GENERATE, GENERATE_ONE, GENERATE_BATCH, GENERATE_FLAT, LISTS, PAIRS, BY_ID, PYCTCDECODE, MANIFEST, REFERENCE_NBEST, WHISPER),
    *(WHISPER_CPP, FASTER_WHISPER, CTRANSLATE2, SHERPA, ROWS, ROW_ARRAY, WRAPPED, WAV2VEC2, AZURE, AZURE_BATCH, AMAZON),
    *(DEEPGRAM, SOCKEYE, TORCHAUDIO, COMPLETIONS, CHAT, OTHER_NAMES),
]
BARE_LISTS = (LISTS, PAIRS, PYCTCDECODE)  # which have no place for scores

SAMPLES = {
    "moses": [MOSES, MARIAN, LEGACY, JOSHUA, UNNAMED],
    "fairseq": [FAIRSEQ],
    "hyporadise": [HYPORADISE, HYPORADISE_PRETTY],
    "jsonl": [JSONL],
    "mlm": [MLM],
    "plain": [PLAIN_BLOCKS, PLAIN_IDS],
    "plain:2": [PLAIN_IN_STEP],
    "srilm": [SRILM, SRILM_MARKED],
    "nemo:2": [NEMO],
    "kaldi": [KALDI],
    "json": JSON,
    "csv": [CSV],
    "tsv": [TSV, TSV_WITHOUT_HEADER, TSV_SCORE_FIRST],
    "icefall": [ICEFALL, ICEFALL_TIMES],
    "ctm": [CTM, CTM_TYPES],
}
ALL_SAMPLES = [(name, sample) for name, samples in SAMPLES.items() for sample in samples]


class GivenPieces(TextSource):
    """A text called FILE that comes in the pieces given, as lines or not: perhaps from a generator that is watched."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self.name = "FILE"
        self._given = pieces

    def lines(self, keep_mark: bool = False) -> Iterator[str]:
        return iter(self._given)

    def pieces(self) -> Iterator[str]:
        return iter(self._given)


class InPieces(TextSource):
    """A text called FILE whose pieces are so short that all ends in the middle of something."""

    def __init__(self, text: str, size: int) -> None:
        super().__init__("FILE", text=text)
        self._text, self._size = text, size

    def pieces(self) -> Iterator[str]:
        return (self._text[i : i + self._size] for i in range(0, len(self._text), self._size))


def read(text: str, name: str, piece: int = 7) -> list[NbestList]:
    return list(find_format(name).read(InPieces(text, piece)))


def write(lists: list[NbestList], name: str) -> str:
    out = io.StringIO()
    find_format(name).write(lists, out)
    return out.getvalue()
