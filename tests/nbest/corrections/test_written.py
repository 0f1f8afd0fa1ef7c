"""Corrections that compare words without case and punctuation: hypotheses keep theirs."""

from __future__ import annotations

import random

import pytest

import attlm_fairseq as attlm
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import collected
from attlm_fairseq.nbest.corrections import Corrections, learn_corrections
from attlm_fairseq.nbest.corrections.alignment import bounded
from attlm_fairseq.nbest.corrections.search import Edge
from attlm_fairseq.nbest.corrections.written import Written, usual_forms
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.text import text_pipeline

STEPS = text_pipeline("remove-punctuation,lowercase")
CHARACTERS = text_pipeline("remove-punctuation,lowercase,characters")
OPTIONS = attlm.TuneOptions(folds=3, restarts=1)
TEXT = '"Well-known, U.S. Flights -- from Bost On to Denver.'


def corrected(text, *changes, steps=STEPS, kind="phrase"):
    """Return the text with ``(source, target)`` replaced, at the first place where the source stands."""
    written = Written.of(text, steps)
    replaced = {}
    for source, target in changes:
        words = tuple(source.split())
        begin = next(i for i in range(len(written.words)) if written.words[i : i + len(words)] == words)
        compared = tuple(steps.words(target)) if kind == "list" else tuple(target.split())
        replaced[begin] = Edge(begin, begin + len(words), compared, -1.0, (kind, source, target))
    edges, place = [], 0
    while place < len(written.words):
        edge = replaced.get(place, Edge(place, place + 1, (written.words[place],), -0.1))
        edges.append(edge)
        place = edge.end
    return written.corrected(edges)


def test_the_words_are_those_of_the_steps():
    generator = random.Random(3)
    for _ in range(300):
        text = "".join(
            generator.choice("aB'é \u2019-.,$ <s>\u00a0\u0301ﬁI字か\u3099。\u0e19\u0e49\u0e33") for _ in range(generator.randrange(25))
        )
        for steps in map(text_pipeline, ("", STEPS, "unicode:nfkc,lowercase", "uppercase", "lowercase,characters", CHARACTERS)):
            written = Written.of(text, steps)
            assert written.words == tuple(bounded(steps.prepared(text)))
            kept = [Edge(place, place + 1, (word,), 0.0) for place, word in enumerate(written.words)]
            assert written.corrected(kept) == " ".join(text.split())


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("bost on", "boston", '"Well-known, U.S. Flights -- from Boston to Denver.'),
        ("from bost on to", "from boston to", '"Well-known, U.S. Flights -- from Boston to Denver.'),
        ("denver </s>", "dallas </s>", '"Well-known, U.S. Flights -- from Bost On to Dallas.'),
        ("denver </s>", "denver please </s>", '"Well-known, U.S. Flights -- from Bost On to Denver please.'),
        ("<s> well known", "<s> unknown", '"Unknown, U.S. Flights -- from Bost On to Denver.'),
        ("well", "un", '"Un-known, U.S. Flights -- from Bost On to Denver.'),
        ("flights", "a flight", '"Well-known, U.S. A flight -- from Bost On to Denver.'),
        ("on", "", '"Well-known, U.S. Flights -- from Bost to Denver.'),
        ("to", "into", '"Well-known, U.S. Flights -- from Bost On into Denver.'),
    ],
)
def test_case_and_punctuation_stay(source, target, expected):
    assert corrected(TEXT, (source, target)) == expected


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        ("Um, show me flights to Denver, thank you.", [("<s> um", "<s>"), ("thank you </s>", "</s>")], "Show me flights to Denver."),
        ("Show flights to Boston, please.", [("please </s>", "</s>")], "Show flights to Boston."),
        ("Show flights to Boston, please", [("please </s>", "</s>")], "Show flights to Boston"),
        (
            "Flights to Denver.",
            [("<s> flights", "<s> show flights"), ("denver </s>", "denver please </s>")],
            "Show Flights to Denver please.",
        ),
        ("Fares, uh, to Boston?", [("uh", "")], "Fares, to Boston?"),
        ("Fares (to Boston), please.", [("to boston", "")], "Fares, please."),
        ("It is 3% of fish & chips.", [("3 of", "3 percent of"), ("fish chips", "fish and chips")], "It is 3 percent of fish and chips."),
        ("AT&T fares", [("at t", "at and t")], "AT and T fares"),
        ("你好\uff0c世界3\u3002我很好\uff01", [("你好", "您好")], "您好\uff0c世界3\u3002我很好\uff01"),
        ("A Well-Known flight", [("known", "new")], "A Well-New flight"),
        ("At 5:30 p.m.", [("m </s>", "am </s>")], "At 5:30 p.am."),
        ("It costs $5,000.", [("$5000", "six")], "It costs six."),
        ("e-mail-address", [("mail address", "male address")], "e-male-address"),
        ("May twenty-seven, please.", [("twenty", "twentieth"), ("seven", "seventh")], "May twentieth-seventh, please."),
        ("May twenty-seven.", [("twenty", "thirty"), ("seven </s>", "</s>")], "May thirty."),
        ("May twenty-seven.", [("twenty seven", "twenty and seven")], "May twenty and seven."),
        ("A.", [("a", "hey")], "Hey."),
        ("NASA", [("nasa", "nassau")], "NASSAU"),
        ("Washington DC, I hope", [("dc", "d c"), ("i", "we")], "Washington D C, We hope"),
        ("So I I go", [("i i", "we")], "So We go"),
        ("'a" * 300, [], "'a" * 300),
        ("A 10,000-mil trip, e.g. to Bost.", [("10000 mil", "10000 mile"), ("bost", "boston")], "A 10,000-mile trip, e.g. to Boston."),
        ("It costs $1,234.56, not $5.", [("not", "and")], "It costs $1,234.56, and $5."),
        ("DIE STRASSE.", [("die strasse", "die straße")], "DIE STRAßE."),  # no capital is still \u00df to the steps
        ("ER FÄHRT NACH GISSEN AM MONTAG.", [("gissen", "gießen")], "ER FÄHRT NACH GIEßEN AM MONTAG."),
        ("Algaz gitti.", [("algaz", "\u0131lgaz")], "\u0131lgaz gitti."),  # I is not \u0131 to the step lowercase
        ("“No?” he said", [("no", "know")], "“Know?” he said"),
        ("¿Qué tal?", [("qué", "como")], "¿Como tal?"),
        ("I [noise] a flight, [laughter].", [("noise", "need")], "I need a flight, [laughter]."),
        ("(um) I fly", [("<s> um i", "<s> i")], "I fly"),
        ("I (um) fly (please).", [("um", ""), ("please </s>", "</s>")], "I fly."),
        ('I said "um" (well, no)', [("um", ""), ("well", "")], "I said (no)"),
        ("I <noise>, fly {um}", [("<noise>", ""), ("um </s>", "</s>")], "I, fly"),
        ("A {noise} flight (please)", [("noise", "new"), ("please </s>", "thanks </s>")], "A new flight (thanks)"),
    ],
)
def test_signs_and_capitals(text, changes, expected):
    assert corrected(text, *changes) == expected


def test_words_from_elsewhere_are_written_like_the_text():
    written = Written.of("Show flights from Bost On, please.", STEPS)
    assert written.rewritten(tuple(bounded("show me the flights from boston please"))) == "Show me the flights from Boston, please."
    assert written.rewritten(written.words) == "Show flights from Bost On, please."


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("我用iPhone在乌鲁木其\uff0c开会。", "我 用 iphone 在 乌 鲁 木 齐 市 开 大 会", "我用iPhone在乌鲁木齐市\uff0c开大会。"),
        ("Say 東京 now", "say 東 京 都 now and", "Say 東京 都 now and"),
        ("I use C 東京", "i use c 東 京 d now", "I use C 東京 d now"),
        ("我 在 北京 开会", "我 在 北 京 会", "我 在 北京 会"),
        ("\uff08东京\uff09我去", "京 我 去", "\uff08京\uff09我去"),
        ("我用iPhone在乌鲁木其\uff0c开会。", "他 我 用 iphone x 在 乌 鲁 开 会 吧", "他我用iPhone x在乌鲁\uff0c开会吧。"),
        ("我用iPhone开会。", "hey 我 用 new york 会 ok bye", "hey我用new york会ok bye。"),
        ("我 在 乌 鲁 木 其 开 会", "我 在 乌 鲁 木 齐 市 开 大 会", "我 在 乌 鲁 木 齐 市 开 大 会"),
        ("我们 在 乌鲁 木其 开会", "我 们 在 乌 鲁 木 齐 市 开 会", "我们 在 乌鲁 木齐市 开会"),
        ("会", "会 吧", "会吧"),
        ("\uff08字\uff09我会", "我 会", "我会"),
        ("我\uff08字\uff09会", "我 会", "我会"),
        ("NASA会", "nasa 会 吧", "NASA会吧"),
    ],
)
def test_characters_are_written_as_the_text_has_them(text, words, expected):
    written = Written.of(text, CHARACTERS)
    assert written.words == tuple(bounded(CHARACTERS.prepared(text)))
    assert written.rewritten(tuple(bounded(words))) == expected


def test_names_are_written_as_the_lists_write_them_whatever_the_case_of_the_steps():
    texts = ["Fly to Denver now.", "Fly from Denver, please.", "FLIGHTS TO DENVER NOW"]
    for steps, denver in (("remove-punctuation,lowercase", "denver"), ("remove-punctuation,uppercase", "DENVER")):
        pipeline = text_pipeline(steps)
        usual = usual_forms([texts], pipeline)
        assert {word: form.form for word, form in usual.items()} == {denver: "Denver"}
        change = (Edge(3, 4, (denver,), 0.0, ("phrase", "", "")),)
        for text, expected in (("We fly to dender.", "We fly to Denver."), ("WE FLY TO DENDER.", "WE FLY TO DENVER.")):
            written = Written.of(text, pipeline, usual)
            kept = [Edge(at, at + 1, (word,), 0.0) for at, word in enumerate(written.words)]
            assert written.corrected([*kept[:4], change[0]._replace(begin=4, end=5), *kept[5:]]) == expected


def test_words_stay_as_they_are_where_they_cannot_be_joined():
    steps = text_pipeline("characters,lowercase")
    assert Written.of("会", steps).rewritten(tuple(bounded("会 \u0e33"))) == "会 \u0e33"  # a mark alone, which would join


@pytest.mark.parametrize(
    ("steps", "text", "words", "expected"),
    [
        (
            "remove-punctuation,lowercase",
            "Well-known: $1,234.56 a month",
            "well x known $1234 56 a month",
            "Well x known: $1,234.56 a month",
        ),
        ("uppercase:tr", "istanbul ve ankara", "\u0130ZM\u0130R VE ISPARTA", "izmir ve \u0131sparta"),
        ("lowercase:tr", "\u0130STANBUL VE ANKARA", "izmir ve \u0131sparta", "\u0130ZM\u0130R VE ISPARTA"),
        ("lowercase:tr", "Ali geldi", "ilgaz geldi", "\u0130lgaz geldi"),
    ],
)
def test_words_of_other_scripts_are_written_with_their_case(steps, text, words, expected):
    assert Written.of(text, text_pipeline(steps)).rewritten(tuple(bounded(words))) == expected


def test_corrections_of_text_without_spaces(tmp_path):
    """They compare characters, and the candidates are written as the lists are: unspaced, or in characters."""
    pairs = [(f"{who}去相港{what}。", f"{who}去香港{what}。") for who in ("我们", "小李", "她") for what in ("买苹果", "开会", "看朋友")]
    with collected() as lines:
        attlm.learn_corrections(lists_of(*pairs), text="characters").save(tmp_path / "c.tsv")
        assert lines == []
        attlm.learn_corrections(lists_of(*pairs))
    assert "note: the references have no spaces between words, so corrections take clauses for words: learn with --text characters" in lines
    loaded = Corrections.load(tmp_path / "c.tsv")
    for text in ("老王去{}港。", "老 王 去 {} 港 。", "用iPhone去{}港"):
        found = loaded.expand(NbestList("0", [Hypothesis(text.format("相"), {"am": -1.0})]))
        assert text.format("香") in [hypothesis.text for hypothesis in found.hypotheses]


def test_several_changes_of_one_text():
    changes = ("flights", "fights"), ("bost on", "boston"), ("denver </s>", "dallas </s>")
    assert corrected(TEXT, *changes) == '"Well-known, U.S. Fights -- from Boston to Dallas.'


def test_a_text_of_capitals_stays_one():
    assert corrected("SHOW ME THE FLIGHT.", ("flight </s>", "flights please </s>")) == "SHOW ME THE FLIGHTS PLEASE."
    assert corrected("show Me the flight.", ("ME", "US"), steps=text_pipeline("uppercase")) == "show Us the flight."


def test_without_steps_a_text_is_its_words():
    assert corrected("A flight, Please", ("flight,", "flights, all"), steps=text_pipeline("")) == "A flights, all Please"
    assert corrected("a flight,", ("flight,", "Flight"), steps=text_pipeline("lowercase")) == "a Flight"  # the sign was compared, too


def test_phrases_of_a_list_are_written_as_in_it():
    assert corrected("(pod gorica), please", ("pod gorica", "Podgorica"), kind="list") == "(Podgorica), please"


def lists_of(*pairs):
    return [NbestList(str(n), [Hypothesis(text, {"am": -1.0})], (reference,)) for n, (text, reference) in enumerate(pairs)]


PAIRS = [
    (f"From {origin} to Bost On, {end}", f"from {origin.lower()} to boston {end.strip('.').lower()}")
    for origin in ("Denver", "Dallas", "Atlanta", "Miami")
    for end in ("please.", "Today.", "now!")
]


def test_learned_words_are_without_case_and_punctuation(tmp_path):
    learned = learn_corrections(lists_of(*PAIRS), text=STEPS)
    learned.save(tmp_path / "c.tsv")
    loaded = Corrections.load(tmp_path / "c.tsv")
    assert loaded.text == STEPS
    assert ("bost", "on") in loaded.phrases.rules
    expanded = loaded.expand(NbestList("x", [Hypothesis("From Bost On, to Miami.", {"am": -1.0})]))
    texts = [hypothesis.text for hypothesis in expanded.hypotheses]
    assert "From Boston, to Miami." in texts
    compared = [STEPS.prepared(text) for text in texts]
    assert len(set(compared)) == len(compared)  # no candidate is an input hypothesis in other letters
    again = loaded.learned_again(lists_of(*PAIRS), tmp_path / "c.tsv")
    assert again.text == STEPS
    assert again.phrases == learned.phrases


def test_texts_are_the_same_with_and_without_steps_where_these_do_nothing():
    plain = [(STEPS.prepared(text), STEPS.prepared(reference)) for text, reference in PAIRS]
    first, second = (learn_corrections(lists_of(*plain), text=steps) for steps in (text_pipeline(""), STEPS))
    for text, _ in plain:
        one, other = (learned.expand(NbestList("x", [Hypothesis(text, {"am": -1.0})])) for learned in (first, second))
        assert [(hypothesis.text, hypothesis.scores) for hypothesis in one.hypotheses] == [
            (hypothesis.text, hypothesis.scores) for hypothesis in other.hypotheses
        ]


def test_new_words_are_written_as_the_lists_write_them(tmp_path):
    lists = lists_of(
        *PAIRS,
        *((f"We fly to Boston {end}.", f"we fly to boston {end}") for end in ("now", "today")),
        ("boston or Boston. Boston? BOSTON", "boston or boston boston boston"),  # two begin sentences
        ("GO TO DENVER", "go to denver"),
    )
    learned = learn_corrections(lists, text=STEPS)
    assert learned.usual["boston"].form == "Boston"
    assert "please" not in learned.usual
    assert learned.usual["boston"].lists == pytest.approx(3)
    learned.save(tmp_path / "c.tsv")
    loaded = Corrections.load(tmp_path / "c.tsv")
    assert {word: usual.form for word, usual in loaded.usual.items()} == {word: usual.form for word, usual in learned.usual.items()}
    expanded = loaded.expand(NbestList("x", [Hypothesis("From bost on, to Miami.", {"am": -1.0})]))
    assert "From Boston, to Miami." in [hypothesis.text for hypothesis in expanded.hypotheses]
    table = (tmp_path / "c.tsv").read_text(encoding="utf-8")
    for wrong in (table.replace("written\tboston\tBoston", "written\tboston\tAustin"), table.replace("# text", "# no text")):
        (tmp_path / "c.tsv").write_text(wrong, encoding="utf-8")
        with pytest.raises(InputError, match="expected a word after the steps of '# text =', and how it is written"):
            Corrections.load(tmp_path / "c.tsv")


def test_other_steps_are_refused(tmp_path):
    for steps in ("tokenize:en", "lowercase,join-characters"):
        with pytest.raises(InputError, match="corrections compare words one by one, by the steps unicode, lowercase"):
            attlm.learn_corrections(lists_of(*PAIRS), text=steps)
    with pytest.raises(InputError, match="text step unicode:nfkc: it makes letters and signs that lowercase changes: give it as the first"):
        attlm.learn_corrections(lists_of(*PAIRS), text="unicode:nfc,lowercase,unicode:nfkc")
    attlm.learn_corrections(lists_of(("it is 20℃ №", "it is 21℃ №")), text="unicode:nfkc,lowercase").save(tmp_path / "signs.tsv")
    assert Corrections.load(tmp_path / "signs.tsv").phrases.rules["20°c",][0].target == ("21°c",)
    older = (tmp_path / "signs.tsv").read_text(encoding="utf-8").replace("unicode:nfkc,lowercase", "lowercase,unicode:nfkc")
    rows = [line for line in older.splitlines() if not {*"c№"} & {*line} or line[:1] == "#" or line[:4] == "kind"]
    (tmp_path / "signs.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert Corrections.load(tmp_path / "signs.tsv").lists == 1  # of an earlier version, without such signs
    learn_corrections(lists_of(*PAIRS), text=STEPS).save(tmp_path / "c.tsv")
    table = (tmp_path / "c.tsv").read_text(encoding="utf-8")
    (tmp_path / "c.tsv").write_text(table.replace("# text = remove-punctuation", "# text = tokenize:en"), encoding="utf-8")
    with pytest.raises(InputError, match=r"c.tsv: the line '# text =': text step tokenize:en: corrections compare"):
        Corrections.load(tmp_path / "c.tsv")
    (tmp_path / "c.tsv").write_text(f"{table}phrase\tbost on\tBoston\t-0.1\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"c.tsv:\d+: 'Boston' is 'boston' after the steps of '# text =': write that"):
        Corrections.load(tmp_path / "c.tsv")


def test_what_changes_nothing_for_the_metric_is_told(tmp_path):
    lists = lists_of(*PAIRS)
    metric = attlm.make_metric("wer", text="remove-punctuation,lowercase")
    for text, told in (("", True), ("remove-punctuation,lowercase", False)):
        with collected() as learning:
            attlm.learn_corrections(lists, text=text).save(tmp_path / f"{told}.tsv")
        assert any("learn with --text remove-punctuation,lowercase" in line for line in learning) == told
        with collected() as tuning:
            attlm.tune(lists, config=attlm.run_config(corrections=tmp_path / f"{told}.tsv"), metric=metric, options=OPTIONS)
        assert any("only in what --metric-text leaves out" in line for line in tuning) == told
