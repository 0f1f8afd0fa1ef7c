"""Every kind of broken list gives one clear line with the number of the line at fault."""

from __future__ import annotations

import pytest
from nbest_samples import FAIRSEQ, HYPORADISE_PRETTY, MOSES, NEMO

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.nbest.formats import find_format, open_nbest

GOOD = "0 ||| a ||| LM0= -1 ||| -2\n"
H, P = "H-1\t-0.5\ta b\n", "P-1\t-0.1 -0.2 -0.3\n"
FIRST = '{"hyps": [{"text": "a"}]}\n'
SHAPES = '; the JSON that is read: {"id": .., "hyps": [{"text": ..}, ..]} on one line each (jsonl), [{"input": '
PRETTY_SCORES = '[\n {\n  "input": ["a", "b"],\n  "am_score": [\n   -1,\n   %s\n  ]\n }\n]\n'

SAME_ID = '{"id": "same", "hyps": [{"text": "a", "score": -1}]}\n'
MANIFEST = '{"audio_filepath": "a.wav", "offset": 0, "text": "ref one", "pred_text": "hyp one"}\n'
BROKEN = [
    # Moses
    ("moses", GOOD + "0 ||| b ||| LM0= -1\n", 2, "3 fields with features and without total, but the first line has 4 fields"),
    ("moses", GOOD + "0 ||| b\n", 2, "2 fields without features"),
    ("moses", GOOD + "0 b\n", 2, "expected 'id ||| hypothesis ||| features ||| total'"),
    ("moses", GOOD + " ||| b ||| LM0= -1 ||| -2\n", 2, "expected 'id"),
    ("moses", "0 ||| b ||| LM0= nan ||| -2\n", 1, "LM0 is nan: expected a finite number"),
    ("moses", GOOD + "0 ||| b ||| LM0= -1 ||| -inf\n", 2, "the total is -inf: expected a finite number"),
    ("moses", GOOD + "0 ||| b ||| LM0= -1.x ||| -2\n", 2, "LM0 is '-1.x': expected a number"),
    ("moses", GOOD + "0 ||| b ||| LM0=-1.x ||| -2\n", 2, "LM0 is '-1.x': expected a number"),
    ("moses", GOOD + "0 ||| b ||| LM0= ||| -2\n", 2, "the feature LM0 has no value"),
    ("moses", GOOD + "0 ||| b ||| LM0= TM0= -1 ||| -2\n", 2, "the feature LM0 has no value"),
    ("moses", GOOD + "0 ||| b ||| LM0= -1 ||| two\n", 2, "the total is 'two': expected a number"),
    ("moses", GOOD + "0 ||| b ||| LM0= 1_0 ||| -2\n", 2, "expected a number"),
    ("moses", "0 ||| b ||| -1 x ||| -2\n", 1, "a feature without a name is 'x'"),
    ("moses", GOOD + GOOD.replace("0", "1", 1) + GOOD, 3, "the list of id 0 continues here after other ids"),
    ("moses", GOOD + "\n" + GOOD, 2, "blank line inside the list of id 0"),
    # fairseq
    ("fairseq", H + P + "H-1\t-0.6\n" + P, 3, "H-1 has one field"),
    ("fairseq", H + P + "H-1\n", 3, "expected a tab after the sentence number"),
    ("fairseq", H + P + "H-1 -0.6 a b\n", 3, "expected a tab after the sentence number"),
    ("fairseq", "H-1\tnan\ta b\n" + P, 1, "the score of H-1 is nan: expected a finite number"),
    ("fairseq", "H-1\tx\ta b\n" + P, 1, "the score of H-1 is 'x': expected a number"),
    ("fairseq", H + "P-1\t-0.1 -inf -0.2\n", 2, "a score of P-1 is -inf: expected a finite number"),
    ("fairseq", H + "P-1\t-0.1 -0.2\n", 2, "P-1 has 2 scores for 2 words: expected at least 3"),
    ("fairseq", H + P + "H-1\t-1\tc\n", 3, "hypothesis 2 of sentence 1 has no P-line, those before have one"),
    ("fairseq", H + "H-2\t-1\tc\nP-2\t-1 -1\n", 2, "hypothesis 1 of sentence 2 has a P-line, those before have none"),
    ("fairseq", H + P + P, 3, "P-1 is there twice"),
    ("fairseq", P + H, 1, "P-1 comes before its H-line"),
    ("fairseq", H + "P-2\t-0.1 -0.2\n", 2, "P-2 comes before its H-line"),
    ("fairseq", "S-1\ta\nS-2\tb\n" + H.replace("1", "2", 1), 1, "sentence 1 has no H-line"),
    ("fairseq", FAIRSEQ + "S-12\tagain\n" + H.replace("1", "12", 1), 18, "sentence 12 continue here after other sentences"),
    ("fairseq", "S-1\ta\n" + H + P + "S-1\ta\n" + H + P, 4, "S-1 comes after an H-line"),
    ("fairseq", H + P + "L-1\tlm\n", 3, "expected name=value"),
    ("fairseq", H + P + "D-1\t-0.5\n", 3, "D-1 has one field"),
    ("fairseq", "a log line\n", None, "no H-line"),
    # JSON
    ("json", '[{"id": 1.0, "text": "a"},\n {"id": 1.0, "text": "b"}]', 1, "id is 1.0: expected an id, a text or a whole number"),
    # HyPoradise
    ("hyporadise", HYPORADISE_PRETTY[:-1], 10, "expected ',' or ']' after item 1"),
    ("hyporadise", HYPORADISE_PRETTY[:60], 6, "item 1 is not valid JSON: the file ends too early"),
    ("hyporadise", HYPORADISE_PRETTY[:40], 5, "item 1 is not valid JSON: the file ends too early"),
    ("hyporadise", HYPORADISE_PRETTY + "x", 10, "found 'x' after the end"),
    ("hyporadise", '[{"input": ["a"]}\n{"input": ["b"]}]', 2, "expected ',' or ']' after item 1"),
    ("hyporadise", '[{"input": ["a"]},\n]', 2, "item 2 is not valid JSON: Expecting value"),
    ("hyporadise", '[{"input": ["a"]},\n{"output": "b"}]', 2, 'item 2: is \'{"output": "b"}\': expected {"input"'),
    ("hyporadise", '[{"input": ["a"]},\n 3]', 2, "item 2: is '3': expected"),
    ("hyporadise", '[{"input":\n "a"}]', 2, "item 1: input is '\"a\"': expected a list"),
    ("hyporadise", '[{"input":\n ["a",\n null]}]', 3, "item 1: input[1] is 'null': expected a text"),
    ("hyporadise", '[{"input":\n ["a",\n "\\ud800"]}]', 3, "item 1: input[1] holds one half of a surrogate pair"),
    ("hyporadise", '[{"input": ["a"], "\\ud83d_score": [1]}]', 1, 'item 1: has a score named "\\ud83d_score", which holds one half'),
    ("hyporadise", PRETTY_SCORES % "NaN", 6, "item 1: am_score[1] is nan: expected a finite number"),
    ("hyporadise", PRETTY_SCORES % "1e999", 6, "item 1: am_score[1] is inf: expected a finite number"),
    ("hyporadise", PRETTY_SCORES % ("9" * 400), 6, "item 1: am_score[1] is inf: expected a finite number"),
    ("hyporadise", PRETTY_SCORES % "null", 6, "item 1: am_score[1] is 'null': expected a number"),
    ("hyporadise", PRETTY_SCORES % "true", 6, "item 1: am_score[1] is 'true': expected a number"),
    ("hyporadise", PRETTY_SCORES % "-2, -3", 4, "item 1: am_score is '[-1, -2, -3]': expected a list of 2 numbers"),
    ("hyporadise", '[{"input": ["a"], "am_score": -1}]', 1, "item 1: am_score is '-1': expected a list of 1 numbers"),
    ("hyporadise", '[{"input": ["a"],\n "output": 3}]', 2, "item 1: output is '3': expected a text"),
    ("hyporadise", '[{"input": ["a"], "input": ["b"]}]', 1, "the key 'input' is there twice"),
    ("hyporadise", "[" * 100_000, 1, "item 1 is not usable JSON"),
    # JSONL
    ("jsonl", FIRST + '{"hyps": [{"text": "a"}\n', 2, "not valid JSON"),
    ("jsonl", FIRST + '{"id": "x"}\n', 2, "with at least one hypothesis"),
    ("jsonl", FIRST + '["a"]\n', 2, "with at least one hypothesis"),
    ("jsonl", FIRST + '{"hyps": ["a"]}\n', 2, "list 1: hyps[0] is '\"a\"': expected"),
    ("jsonl", FIRST + '{"hyps": [{"text": 3}]}\n', 2, "list 1: hyps[0].text is '3': expected a text"),
    ("jsonl", FIRST + '{"hyps": [{"text": "a", "scores": {"lm": NaN}}]}\n', 2, "hyps[0].scores.lm is nan: expected a finite number"),
    (
        "jsonl",
        FIRST + '{"hyps": [{"text": "a", "scores": {"\\ud83d": 1}}]}\n',
        2,
        'hyps[0].scores has a score named "\\ud83d", which holds one half',
    ),
    ("jsonl", FIRST + '{"hyps": [{"text": "a", "scores": [1]}]}\n', 2, "hyps[0].scores is '[1]': expected"),
    ("jsonl", FIRST + '{"hyps": [{"text": "1", "score": "-0.50"}]}\n', 2, "hyps[0].score is '\"-0.50\"': expected a number"),
    ("jsonl", FIRST + '{"id": [1], "hyps": [{"text": "a"}]}\n', 2, "id is '[1]': expected a text"),
    ("jsonl", FIRST + '{"ref": 1, "hyps": [{"text": "a"}]}\n', 2, "ref is '1': expected a text"),
    (
        "jsonl",
        FIRST + '{"hyps": [{"text": "a b", "times": [[1.25, 2], [0.2, 0.5]]}]}\n',
        2,
        "list 1: hyps[0].times[1] is '[0.2, 0.5]': expected a begin of at least 1.25, that of the word before",
    ),
    ("jsonl", FIRST[:-1] + FIRST, 1, "not valid JSON"),
    ("jsonl", '{"text": " hi", "segments": [{"text": " hi"}], "language": "en"}', 1, '({"text": ""} for silence)' + SHAPES),  # Whisper's
    ("jsonl", '{\n "id": "a",\n "hyps": [{"text": "a"}]\n}\n', 1, "expected one whole object per line" + SHAPES),
    ("hyporadise", '[{"text": "hi", "score": -1}]', 1, '"output": reference}' + SHAPES),
    # mlm-scoring
    ("mlm", '{"u": {"hyp_1": {"score": -1, "text": "a"}},\n "v": {"ref": "a"}}', 2, "utterance 'v': is "),
    (
        "mlm",
        '{"u": {"hyp_1": {"score": -1, "text": "a"}},\n "u": {"hyp_1": {"score": -1, "text": "a"}}}',
        2,
        "the utterance 'u' is there twice",
    ),
    ("mlm", '{"u": {"hyp_1": {"score": -1}}}', 1, "utterance 'u': hyp_1 is '{\"score\": -1}': expected"),
    ("mlm", '{"u": {"hyp_1": {"text": "a"}}}', 1, "utterance 'u': hyp_1 is '{\"text\": \"a\"}': expected"),
    ("mlm", '{"u": {\n"hyp_1": {\n"score": NaN, "text": "a"}}}', 3, "utterance 'u': hyp_1.score is nan: expected a finite number"),
    ("mlm", '{"u": {\n"hyp_1": {"score": "-1", "text": "a"}}}', 2, "utterance 'u': hyp_1.score is '\"-1\"': expected a number"),
    ("mlm", '{"u": {\n"hyp_1": {"score": -1, "text": ["a"]}}}', 2, "utterance 'u': hyp_1.text is"),
    ("mlm", '{"u": {\n"hyp_1": {"score": -1, "\\udc00": 2, "text": "a"}}}', 2, 'hyp_1 has a score named "\\udc00", which holds one half'),
    ("mlm", '{"u": 1}', 1, "utterance 'u': is '1': expected"),
    ("mlm", '{"u" {}}', 1, "expected a key in quotes and ':' for item 1"),
    ("moses", "-0.25 ||| a b\n-0.5 ||| a\n", 1, "a score stands before the text, and no id, as OpenNMT-tf writes it; write text<TAB>score"),
    # plain
    ("plain:2", "a\nb\nc\n", 3, "the last list has 1 of 2 lines: is the file cut short"),
    ("plain", "u1\ta\nb\n", 2, "found 'b': expected id<TAB>text like the lines before"),
    ("plain", "a\nu1\tb\n", 2, "expected text without a tab"),
    ("plain", "u1\ta\n\tb\n", 2, "the id before the tab is empty"),
    ("plain", "u1\ta\nu2\tb\nu1\tc\n", 3, "the list of id u1 continues here after other ids"),
    ("plain", "u1\ta\n\nu1\tb\n", 2, "blank line inside the list of id u1"),
    # tables without a header of which it is unclear what the columns are
    ("plain", "u1\ta\t-1\t-2\n", 1, "expected id<TAB>text; a table of more columns needs a header line, such as id<TAB>hyp<TAB>score"),
    ("tsv", "u1\ta\t-1\nu2\tb\t-1\nu1\tc\t-1\n", 3, "the list of id u1 continues here after other ids"),
    # Kaldi
    ("kaldi", "u-1 a\nu b\n", 2, "found the key 'u': expected UTTERANCE-NUMBER"),
    ("kaldi", "u-1 a\n b\n", 2, "expected a key at the beginning of the line"),
    ("kaldi", "u-1 a\nu-1 b\n", 1, "the key u-1 twice"),
    ("kaldi", "u-1 a\nv-1 b\nu-2 b\n", 3, "the list of id u continues here"),
    # SRILM
    ("srilm", "-1 -2 1 a\n-1 -2\n", 2, "expected 'acoustic lm nwords words...'"),
    ("srilm", "-1 -2 1 a\n-1 nan 1 a\n", 2, "the lm score is nan"),
    ("srilm", "-1 -2 1 a\n-1 -2 x a\n", 2, "expected 'acoustic lm nwords words...'"),
    ("srilm", "-1 -2 3 a b\n", 1, "found 2 words, expected 3"),
    ("srilm", "-1 -2 1 a\n\n-1 -2 1 a\n", 2, "blank line inside the list"),
    ("srilm", "NBestList1.0\n(-123) a b\n", 1, "byte-log scores with the LM mixed in"),
    ("srilm", "NBestList2.0\n(-123) a b\n", 1, "byte-log scores with the LM mixed in"),
    # NeMo
    ("nemo:2", "a\t-1.0\nb\n", 2, "expected text<TAB>score"),
    ("nemo:2", "a\t-1.0\nb\tx\n", 2, "the score is 'x': expected a number"),
    ("nemo:2", "a\t-1.0\nb\tinf\n", 2, "the score is inf: expected a finite number"),
    ("nemo:2", "a\t-1.0\nb\t-1.0\t7\n", 2, "found the column '7': expected name=value"),
    ("nemo:2", "a\t-1.0\tlm=2\tlm=3\nb\t-1.0\n", 1, "found the column 'lm=3': expected name=value, each name once"),
    ("nemo:3", NEMO, 4, "the last list has 1 of 3 hypotheses"),
    ("nemo", NEMO, None, "(NeMo's beam size), --format nemo:K"),
    # JSON of any shape
    ("json", '["a b", "c d"]', 1, "texts alone: put the hypotheses of each utterance into a list, [[..], [..]]"),
    ("json", '[["a"],\n {"x": 1}]', 2, "item 2: is '{\"x\": 1}': expected hypotheses like those before"),
    ("json", '{"u1": ["a"],\n "u2": ["b",\n 3]}', 3, "utterance 'u2': [1] is '3': expected a hypothesis"),
    ("json", '{"u1": ["a"],\n "u1": ["b"]}', 2, "the utterance 'u1' is there twice"),
    ("json", '{"id": "u1", "nbest": ["a"]}\n{"id": "u1", "nbest": ["b"]}\n', 2, "'u1' is there twice: give each list an id of its own"),
    ("json", SAME_ID + SAME_ID, 2, "give each list an id of its own (--format jsonl takes several lists of one id)"),
    ("json", '[{"id": "u", "text": "a"}, {"id": "v", "text": "a"},\n{"id": "u", "text": "b"}]', 2, "put its hypotheses together"),
    ("json", '{"u1": [{"text": "1",\n "score": "-0.50"}]}', 2, "utterance 'u1': [0].score is '\"-0.50\"': expected a number"),
    ("json", '{"id": "u1", "text": "a", "loss": "1"}\n', 1, "loss is '\"1\"': expected a number"),
    ("json", '{"id": "u1", "nbest": ["a"]}\n{"id": "u2", "nbest": ["b"}\n', 2, "not valid JSON"),
    ("json", '{"texts": [\n"a", null], "scores": [1, 2]}', 2, "texts[1] is 'null': expected a hypothesis"),
    ("json", '{"u1": [{"text": "a",\n "score": 1e999}]}', 2, "[0].score is inf: expected a finite number"),
    ("json", '{"u1": {"texts": ["a", "b"],\n "scores": [-1,\n NaN]}}', 3, "scores[1] is nan: expected a finite number"),
    ("json", '{"u1": [{"text": "\\ud800"}]}', 1, "[0] holds one half of a surrogate pair"),
    ("json", '[{"id": "u", "nbest": [{"text": "a", "idx": 0}, {"text": "b", "idx": 1}], "scores": [-1]}]', 1, "has 1 numbers: expected 2"),
    ("json", '{"texts": ["a"], "scores": [1]} x', 1, "found 'x' after the end of the JSON document"),
    ("json", '{"texts": ["a"], "scores": [1]', 1, "the file ends too early"),
    ("json", '{"u1": [["a", "b"], ["c"]]}', 1, "utterance 'u1': [0] is '[\"a\", \"b\"]': expected a hypothesis"),
    ("json", '{"texts": ["a"], "sequences_scores": [-1], "num_tokens": [9], "length_penalty": 1e9}', None, "is not a finite number"),
    ("json", "{}", 1, "the JSON document is empty"),
    # rows of two utterances under one id
    ("json", MANIFEST + MANIFEST.replace("one", "two"), 2, "two rows of id 'a.wav' have the references 'ref one' and 'ref two': expected"),
    ("json", MANIFEST + MANIFEST.replace('t": 0', 't": 3'), 2, "have the offsets '0' and '3': expected one; give each utterance an id of"),
    ("json", '[{"id": "u", "hyp": "a", "ref": ""},\n{"id": "u", "hyp": "b", "ref": "c"},\n{"id": "u", "hyp": "b", "ref": "d"}]', 3, "'c' "),
    ("csv", "file,offset,hyp\na.wav,0,a\na.wav,0,b\na.wav,3.5,c\n", 4, "have the offsets '0' and '3.5': expected one; give each utterance"),
    ("csv", "file,hyp,ref\na.wav,a,a\na.wav,b,\na.wav,c,b\n", 4, "two rows of id 'a.wav' have the references 'a' and 'b': expected one"),
    # scores next to the hypotheses
    ("json", '{"id": "u", "texts": ["a", "b", "c"],\n "scores": [-1, -2]}', 2, "scores has 2 numbers: expected 3, one for each hypothesis"),
    ("json", '{"texts": ["a", "b"], "scores": ["-1.5",\n "-2.5"]}', 1, "scores[0] is '\"-1.5\"': expected a number"),
    ("json", '{"texts": ["a", "b"], "am_score": [-1,\n "-2.5"]}', 2, "am_score[1] is '\"-2.5\"': expected a number"),
    ("json", '{"hyps": [{"text": "a"}, {"text": "b"}], "scores": [-1]}', 1, "scores has 1 numbers: expected 2, one for each hypothesis"),
    ("json", '{"texts": [["a", "b"], ["c", "d"]], "sequences_scores": [-1, -2, -3, -4]}', 1, "item 1: sequences_scores has 4 numbers: exp"),
    ("json", '{"texts": ["a", "b", "c", "d"], "scores": [-1, -2, -3], "num_return_sequences": 2}', 1, "scores has 3 numbers: expected 2"),
    ("jsonl", '{"hyps": [{"text": "a"}, {"text": "b"}], "scores": [-1]}', 1, "scores is '[-1]': expected the scores of a hypothesis with"),
    # numbers that are not finite, in a batch
    ("json", '{"texts": [["a", "b"], ["c", "d"]], "sequences_scores": [[-0.1, -Infinity], [-1, -2]]}', 1, "sequences_scores[1] is -inf:"),
    # ids are told, where the file has them
    ("json", '[{"utt": "u1", "nbest": ["a"]}, {"utt": "u 2", "nbest": [{"x": 5}]}]', 1, 'item 2 (id "u 2"): nbest[0] is '),
    ("json", '[{"nbest": ["a"], "id": 7}, {"nbest": [3], "id": 8}]', 1, "item 2 (id 8): nbest[0] is "),
    ("jsonl", '{"id": "u1", "hyps": [{"text": 3}]}\n', 1, 'list 0 (id "u1"): hyps[0].text is '),
    ("jsonl", '{"id": [1], "hyps": [{"text": 3}]}\n', 1, "list 0: hyps[0].text is "),
    # tables
    ("csv", "id,hyp,score\nu1,a\n", 2, "found 2 fields: expected 3 as in the header"),
    ("csv", "id,hyp,score\nu1,a,-1\nu1,b,x\n", 3, "the column score is 'x': expected a number"),
    ("csv", "id,hyp,score\nu1,a,-1\nu1,b,nan\n", 3, "the column score is nan: expected a finite number"),
    ("csv", "id,hyp,score\nu1,a,-1\nu2,b,-1\nu1,c,-1\n", 4, "the list of id u1 continues here after other ids"),
    ("csv", 'id,hyp,score\nu1,"a,-1\nu1,b,-1\n', 2, "not a row of a table: unexpected end of data"),
    ("csv", "hyp,score\na,-1\n", 1, "expected names of columns, among them an id"),
    ("csv", "id,hyp,score,Score\nu1,a,-1,-2\n", 1, "two columns are called 'score' and 'Score': give them names that differ"),
    ("tsv", "id\thyp\tam\tam\nu1\ta\t-1\t-2\n", 1, "two columns are called 'am': give them names that differ"),
    (
        "csv",
        'id,hyp,score\nu1,"a' + "x" * 131072 + ",-1\n",
        2,
        "larger than field limit (131072); is a quote opened here and never closed?",
    ),
    ("csv", "id,hyp,score\n", None, "no n-best list in it: a header alone"),
    ("tsv", "utt\ttext\nu1\ta\tb\n", 2, "found 3 fields: expected 2 as in the header"),
    # icefall
    ("icefall", "u:\tref=['a']\nv:\ttimestamp_ref=[]\n", 2, "expected ID:<TAB>ref=['word', ..]"),
    ("icefall", "u:\tref=['a']\nu:\thyp=['a'\n", 2, "expected ID:<TAB>ref=['word', ..]"),
    ("icefall", "u:\tref=['a']\nu:\thyp=[1]\n", 2, "expected ID:<TAB>ref=['word', ..]"),
    ("icefall", "u:\tref=['a']\nv:\thyp=['a']\n", 2, "the hypothesis of 'v' comes without its reference"),
    ("icefall", "u:\tref=['a']\nv:\tref=['a']\n", 1, "the reference of 'u' has no hypothesis after it"),
]


@pytest.mark.parametrize(("name", "text", "line", "message"), BROKEN)
def test_one_clear_line(name, text, line, message):
    form = find_format(name)
    with pytest.raises(InputError) as caught:
        list(form.read(TextSource("FILE", text=text)))
    assert str(caught.value).startswith(f"FILE:{line}: " if line else "FILE: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_shapes_of_json_are_named_where_the_first_list_is_wrong_alone():
    with pytest.raises(InputError) as caught:
        list(find_format("jsonl").read(TextSource("FILE", text=FIRST + '{"id": "x"}\n')))
    assert SHAPES not in str(caught.value)


def test_two_lists_of_one_id_are_read_as_the_message_says():
    lists = list(find_format("jsonl").read(TextSource("FILE", text=SAME_ID + SAME_ID)))
    assert [(nbest.id, nbest.hypotheses[0].scores) for nbest in lists] == [("same", {"score": -1.0})] * 2


def test_the_lists_before_the_fault_have_come_out():
    lists = find_format("moses").read(TextSource("FILE", text=MOSES + "0 ||| again\n"))
    assert next(lists).id == "0"
    with pytest.raises(InputError, match="FILE:5"):
        list(lists)


def test_output_of_fairseq_that_ends_before_its_first_hypothesis_is_no_list_of_texts(tmp_path):
    (tmp_path / "generate.out").write_text("S-0\ta b\nT-0\tshow me\nS-1\tc\nT-1\tb\n")
    form, lists = open_nbest(str(tmp_path / "generate.out"))
    assert form.name == "fairseq"
    with pytest.raises(InputError, match=r"generate\.out:1: sentence 0 has no H-line"):
        list(lists)
    (tmp_path / "of one kind").write_text("S-0\ta b\nS-0\ta\nS-1\tc\n")  # these may be ids
    assert open_nbest(str(tmp_path / "of one kind"))[0].name == "plain"


def test_a_cut_text_is_told_in_a_whole_sentence():
    """Python's messages for control characters end with "at", which the place follows."""
    with pytest.raises(InputError, match=r"the file ends too early: Invalid control character$"):
        list(find_format("json").read(TextSource("u.json", text='{"id": "u", "hyps": [{"te\n')))
