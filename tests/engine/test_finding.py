"""Finding: passages of whole sentences, ranked by words and by attention."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.finding.finder import Finder, Signs
from engine.finding.numbers import numbers
from engine.finding.passages import LONGEST, cut
from engine.finding.support import is_strange, same_kind, sureness, unsupported
from engine.finding.words import ENGLISH, FRENCH, GERMAN, SPANISH, WordSearch, language_of, stem, terms

FILLER = [f"In the {n}th year the river rose and people of the valley moved their cattle uphill." for n in range(40)]


def text_with(planted: str, at: int = 20) -> tuple[str, Finder, Tensor]:
    """Return a text of characters with a planted sentence, its finder, and its tokens."""
    text = " ".join([*FILLER[:at], planted, *FILLER[at:]])
    ids = torch.tensor([ord(each) for each in text])
    return text, Finder(ids, lambda numbers: "".join(map(chr, numbers)), letters=120), ids


def words(text: str, place: range) -> str:
    return text[place.start : place.stop]


def test_a_text_is_cut_into_whole_sentences_without_gaps() -> None:
    pieces = list("Dr. Who came. He left at once! And then? Nobody knew. " * 9)
    passages = cut(pieces, 30)
    assert [each.start for each in passages[1:]] == [each.stop for each in passages[:-1]]
    assert (passages[0].start, passages[-1].stop) == (0, len(pieces))
    assert all("".join(pieces[each.start : each.stop]).rstrip()[-1] in ".!?" for each in passages)
    assert all(len(each) >= 30 for each in passages[:-1])


def test_a_text_without_sentences_is_cut_too() -> None:
    passages = cut(["word "] * 1000, 100)
    assert len(passages) > 10
    assert all(5 * len(each) <= LONGEST * 100 for each in passages)
    assert sum(map(len, passages)) == 1000
    assert cut(["whole"], 100) == [range(0, 1)]
    assert cut([], 100) == []


@pytest.mark.parametrize(
    ("planted", "question"),
    [
        ("The arbitrator sits in Ghent.", "Where is the seat of arbitration?"),
        ("Die Kündigungsfrist beträgt neun Monate.", "Welche Frist gilt?"),
        ("Mrs. Hale chaired the council.", "Who was the council's chair?"),
        ("Das Gericht hat das Urteil aufgehoben.", "Was wurde aus den Urteilen?"),
        ("合同的通知期为九个月。", "通知期是多久？"),
        ("解約の予告期間は九か月とする。", "予告期間はどれだけか"),
        ("계약 해지의 통지 기간은 아홉 달이다.", "통지 기간은 얼마인가?"),
        ("Le préavis est de neuf mois.", "Quel est le préavis ?"),
        ("Invoice 4711 is overdue.", "What about 4711?"),
    ],
)
def test_words_find_the_sentence_that_has_them(planted: str, question: str) -> None:
    text, finder, _ = text_with(planted)
    assert planted in words(text, finder.find(Signs(question), 1)[0])


def test_the_words_that_few_passages_have_decide() -> None:
    """A passage that repeats the question's common words comes behind the one with its rare word."""
    text, finder, _ = text_with("The heron nested by the mill.")
    assert "heron" in words(text, finder.find(Signs("In which year did people of the valley see the heron?"), 1)[0])
    rarity = [finder.words.rarity(stem(each)) for each in ("giraffe", "heron", "people")]
    assert rarity[0] > rarity[1] > rarity[2] > 0


def test_of_two_alike_the_passage_is_first_around_which_the_rest_is_told() -> None:
    texts = [*FILLER[:9], "The lamp was sold.", *FILLER[9:20], "Orlen had a mill.", "The lamp was lit.", *FILLER[20:]]
    scores = WordSearch(texts).scores("What became of the lamp in the mill of Orlen?")
    sold, lit = (texts.index(f"The lamp was {done}.") for done in ("sold", "lit"))
    assert scores[lit] > scores[sold] > 0
    assert not scores[lit + 1]  # which shares no word with the question
    assert WordSearch(texts).scores("The lamp?")[lit] == WordSearch(texts).scores("The lamp?")[sold]


def test_attention_finds_what_no_word_names_and_both_together_what_both_name() -> None:
    text, finder, ids = text_with("The heron nested by the mill.")
    looked = torch.zeros(len(ids))
    place = text.index("30th year")
    looked[place : place + 20] = 1.0
    assert "30th" in words(text, finder.find(Signs("Xylophone?", [(looked, 1.0)]), 1)[0])
    both = finder.find(Signs("Where did the heron go?", [(looked, 1.0)]), 2)
    assert {"heron" in words(text, each) for each in both} == {True, False}
    looked[text.index("heron") - 40 : text.index("heron") + 40] = 0.5
    assert "heron" in words(text, finder.find(Signs("Where did the heron go?", [(looked, 1.0)]), 1)[0])


def test_only_what_may_be_found_is_found() -> None:
    text, finder, ids = text_with("The heron nested by the mill.")
    within = torch.arange(len(ids) - 600, len(ids))
    found = finder.find(Signs("Where did the heron of the river go?", within=within), 3)
    assert found
    assert all(each.stop > len(ids) - 600 for each in found)
    assert not any("heron" in words(text, each) for each in found)


def test_a_question_that_shares_nothing_with_the_text_finds_nothing() -> None:
    _, finder, ids = text_with("The heron nested by the mill.")
    assert finder.find(Signs("Xylophone quartet?", [(torch.zeros(len(ids)), 1.0)]), 6) == []
    assert WordSearch([""]).scores("anything").tolist() == [0.0]


@pytest.mark.parametrize(
    ("question", "whole", "leads"),
    [
        ("Where did people move their cattle?", False, True),  # words that all passages have
        ("Who chaired the meeting?", False, False),  # words that none has
        ("What is it about?", True, False),
        ("What is this book about?", True, False),
        ("What were people angry about?", False, True),
        ("Summarize the story of the people.", True, False),
        ("Summarize what the heron did.", False, True),
        ("Fasse den Text zusammen.", True, False),
        ("What is the main theme?", True, False),
        ("List the people.", True, False),
        ("要約してください。", True, False),
        ("Why?", True, False),
        ("Summarize the book.", True, False),
        ("What is this text about?", True, False),
        ("List all people.", True, False),
        ("Please give me a short summary in three sentences.", True, False),
        ("Summarize it in 5 bullet points, in at most 100 words.", True, False),
        ("What are the main points?", True, False),
        ("Who are the main characters?", True, False),
        ("Kannst du mir das Buch bitte kurz zusammenfassen?", True, False),
        ("Was ist das Thema?", True, False),
        ("Peux-tu résumer l'histoire, s'il te plaît ?", True, False),
        ("Haz un resumen del texto.", True, False),
        ("Resume el libro.", True, False),
        ("总结这本书。", True, False),
        ("Summarize what the dragon did.", False, True),  # to the summary that the text has
        ("Give me an overview of the dragon.", False, False),
        ("Summarize what the dragon did to the people.", False, True),
        ("Fasse zusammen, was der Drache tat.", False, False),
        ("Résume ce que fait le dragon.", False, False),
        ("Haz un resumen de lo que dijo el dragón.", False, False),
        ("When was the road to the valley resumed?", False, True),
        ("Who moved the plot?", False, True),
        ("Who rose in the main valley?", False, True),
        ("Which people moved the theme?", False, True),
    ],
)
def test_only_summaries_themes_and_lists_are_about_the_whole_text(question: str, whole: bool, leads: bool) -> None:
    """Regression: a summary of what the text does not have counted as one of all, and so did "resumed" and "plot"."""
    _, finder, _ = text_with("The heron nested by the mill. The main theme of the summary is a list in a book.")
    assert (finder.words.is_whole(question), finder.words.leads(question)) == (whole, leads)


SPOKEN = {
    "The key of the house lay in the old box, and it was on a table.": [
        "Where is the key of the house?",
        "What is the capital of France?",
        "Has he an answer on that?",
    ],
    "Der Schlüssel lag an dem Ort, wo du ihn auf einer Fahrt in die Stadt hattest.": [
        "Wo ist der Schlüssel von dem Haus?",
        "An was will er ran?",
    ],
    "La clé de la maison est dans une boîte, et on y a mis son nom.": [
        "Où est la clé de la maison ?",
        "En quelle année le fleuve est-il monté ?",
    ],
    "La llave de la casa está en un cajón, que es de los abuelos y a veces del perro.": [
        "¿Dónde está la llave de la casa?",
        "¿En qué año le dio un libro a la reina?",
    ],
}


@pytest.mark.parametrize("text", SPOKEN)
def test_a_question_is_in_the_language_that_has_most_of_its_small_words(text: str) -> None:
    """Regression: words that two languages share counted for one of them."""
    words = WordSearch([text])
    assert words.speaks("Key?")
    assert {each for told in SPOKEN.values() for each in told if words.speaks(each)} == {*SPOKEN[text]}


@pytest.mark.parametrize("question", ["川はいつ増水したか？", "Когда поднялась река?", "Quando crebbero le acque?"])
def test_several_words_that_the_text_does_not_have_are_of_another_language(question: str) -> None:
    """Regression: right answers to them came with a warning that the text does not say so."""
    assert not WordSearch(FILLER).speaks(question)
    assert WordSearch([question]).speaks(question)
    assert WordSearch(["Die Kündigungsfrist beträgt neun Monate."]).speaks("Welche Frist gilt?")


def test_terms_are_stems_and_pairs_of_characters() -> None:
    assert terms("Arbitration, arbitrators!") == ["arbitr", "arbitr"]
    assert terms("通知期") == ["通知", "知期"]
    assert terms("\N{FULLWIDTH LATIN CAPITAL LETTER A}bc") == ["abc"]


@pytest.mark.parametrize("word", ["Andes", "Anders", "Howe", "hate", "dies", "sure", "Ester", "Ware", "willing"])
def test_what_is_left_of_a_word_is_no_small_word(word: str) -> None:
    """Regression: "Where are the Andes?" was a question without any telling word."""
    search = WordSearch([f"{word} is what they spoke of.", "A river rose."])
    assert search.leads(f"What of {word}?")
    assert search.scores(f"What of {word}?").argmax() == 0
    assert not search.known("What of the and of how?")


PASSAGES = [
    "Either party may end it by notice of nine months. Invoices are due within thirty days of receipt.",
    "The price is £12,000 a year. M. Ellwood signed for the Customer on 3 May 2025, in Ghent.",
]


@pytest.mark.parametrize(
    ("answer", "marked"),
    [
        ("14 days.", ["14"]),
        ("Nine months.", []),
        ("9 months, or 30 days.", []),
        ("Thirty.", []),
        ("Three.", []),
        ("12000 pounds, or 12.000.", []),
        ("It was signed on 5 May 2024.", ["5", "2024"]),
        ("Mr. Smith of Paris signed it in Ghent.", ["Smith", "Paris"]),
        ("Paris.", ["Paris"]),
        ("Ghent.", []),
        ("Unfortunately they left it open.", []),
        ("Ellwood's customer.", []),
        ("Signer.", ["Signer"]),  # "signed" is another word
        ("Parter.", ["Parter"]),
    ],
)
def test_numbers_and_names_that_no_passage_has_are_marked(answer: str, marked: list[str]) -> None:
    found = unsupported("Who signed?", answer, PASSAGES)
    assert [answer[start:end] for start, end in found] == marked


def test_what_the_passages_say_of_the_same_kind_is_told() -> None:
    assert same_kind("Within 14 days of it.", 9, PASSAGES) == ["thirty days"]
    assert same_kind("For 14 months.", 6, PASSAGES) == ["nine months"]
    assert same_kind("For 14.", 6, PASSAGES) == same_kind("14 kings", 2, PASSAGES) == []


@pytest.mark.parametrize(
    ("language", "text", "values"),
    [
        (
            ENGLISH,
            "The six, twenty-one or two hundred and five of 12,000; two three, fourteen",
            "6 21 205 12000 2 3 14",
        ),
        (ENGLISH, "The sixth of the twenty and five hundred men, 7 and the eight", "6 20 500 7 8"),
        (GERMAN, "Die hundertzwanzig oder die hundertfünf und einhunderteins sind der Rest", "120 105 101"),
        (SPANISH, "Los quinientos soldados y las novecientas de la casa", "500 900"),
        (GERMAN, "Die sechs, einundzwanzig, dreihundertfünfundvierzig und dreißig: 1.000,5", "6 21 345 30 1000,5"),
        (FRENCH, "Les vingt et un, dix-sept, quatre-vingts, deux cent quatre-vingt-dix-neuf", "21 17 80 299"),
        (SPANISH, "Los treinta y dos, veintidós y ciento veinte, dos o tres", "32 22 120 2 3"),
    ],
)
def test_numbers_in_digits_and_in_words_have_one_value(language: int, text: str, values: str) -> None:
    assert language_of(text) == language
    assert [each.value for each in numbers(text, language)] == values.split()


def test_numbers_are_words_of_one_language() -> None:
    """In English "once" is no eleven, and "cent" no hundred."""
    assert list(numbers("He paid once: a cent.", ENGLISH)) == []


def test_nouns_are_no_names_where_all_nouns_begin_with_a_capital_letter() -> None:
    text = ["Der Hund und die Katze sitzen auf dem Dach von dem Haus, und der Baum steht im Garten bei dem Tor."]
    assert unsupported("Wo ist der Hund?", "Er sitzt auf der Mauer neben 3 Katzen.", text) == [(29, 30)]


def test_an_answer_is_surer_beside_the_words_of_its_question() -> None:
    """The wrong number stands in the text too, but beside other words."""
    words = WordSearch([*PASSAGES, *FILLER])

    def sure(question: str, answer: str) -> float:
        return sureness(words, question, answer, PASSAGES)

    assert sure("When are invoices due?", "Within thirty days.") > 1.5 * sure("When are invoices due?", "Nine months.")
    assert sure("What notice ends it?", "Nine months.") > 1.5 * sure("What notice ends it?", "Within thirty days.")
    assert sure("What notice ends it?", "9 months.") == pytest.approx(sure("What notice ends it?", "Nine months."))
    assert sure("What month is it signed, and on which day?", "Three.") > 0
    assert sure("What notice ends it?", "8") == 0
    assert sure("What is the capital of France?", "Paris.") == 0
    assert sure("When are invoices due?", "Invoices are due.") == 0, "it says nothing new"
    assert sure("When are invoices due?", "") == 0


@pytest.mark.parametrize(
    ("question", "strange"),
    [
        ("What is the capital of France?", True),
        ("Who signed for the Customer?", False),
        ("What is it about?", False),
        ("Summarize the story.", False),
        ("Summarize what the dragon did.", True),
        ("List all dragons.", True),
        ("Fasse zusammen, was der Drache tat.", True),
        ("Résume ce que fait le dragon.", True),
        ("Haz un resumen de lo que dijo el dragón.", True),
        ("List all people.", False),
        ("Fasse den Text zusammen.", False),
        ("Summarize the invoices.", False),
        ("Does it say anything of France and invoices?", False),
    ],
)
def test_a_question_that_has_nothing_to_do_with_the_text_is_strange(question: str, strange: bool) -> None:
    assert is_strange(WordSearch(PASSAGES), question) == strange
