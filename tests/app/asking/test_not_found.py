"""Answers that say that nothing was found."""

import pytest

from app.asking.not_found import is_no_value, says_not_found


@pytest.mark.parametrize(
    "answer",
    [
        "That is not in the text.",
        " That is not in the text.\n",
        "I did not find that.",
        "I couldn’t find any information about the Count in the provided text.",
        "I could not find it.",
        "I'm sorry, but I cannot answer that from the text.",
        "The text does not mention a Count.",
        "The text doesn't explicitly state how old she is.",
        "The provided document does not provide the name of the author.",
        "Unfortunately, the passage does not say.",
        "Based on the given text, there is no information about his wife.",
        "There is no mention of a pawnbroker.",
        "There is not enough information to answer.",
        "The name of the ship is not mentioned in the text.",
        "**Not mentioned in the text.**",
        "Not stated.",
        "It is not specified.",
        "No information is given about the price.",
        "No, the paper does not discuss BM25.",
        "I don't know.",
        "It cannot be determined from the text.",
        "The text contains no information on this.",
        "The text does not say how tall he is. It only describes his hat.",
        "Das steht nicht im Text.",
        "Der Text erwähnt keinen Grafen.",
        "Im Text wird sein Alter nicht genannt.",
        "Ich habe das nicht gefunden.",
        "Es gibt keine Angaben zum Preis.",
        "Cela n’est pas dans le texte.",
        "Le texte ne mentionne pas de comte.",
        "Je n'ai pas trouvé cela.",
        "Il n'y a aucune information sur son âge.",
        "Eso no está en el texto.",
        "El texto no menciona a ningún conde.",
        "No hay información sobre su edad.",
        "文中没有提到这一点。",
        "没有找到相关信息。",
        "这不在文中。",
        "本文には記載がありません。",
        "見つかりませんでした。",
    ],
)
def test_answers_that_found_nothing(answer: str) -> None:
    assert says_not_found(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Mara Duvane",
        "He did not find the key.",
        "I did not find the key.",
        "“I did not find that,” said Holmes.",
        "The letter does not mention the crown.",
        "The king does not say where he was.",
        "She does not know.",
        "There is no lock on the door.",
        "There is no doubt that he did it.",
        "No man was there.",
        "No, he never went to sea.",
        "The book was not in the room.",
        "The key was not found in the drawer.",
        "It was not given to him until noon.",
        "It is not a gem but a piece of glass.",
        "I do not know the man.",
        "The text does not only mention the lamp: it names the keeper.",
        "The text does not state his age, but says that he was born in 1802.",
        "The text does not name the Count. However, chapter 2 calls him Dracula.",
        "The story ends at sea, where nothing was found.",
        "The text says that no information was given to the police.",
        "Er hat den Schlüssel nicht gefunden.",
        "Il n'a pas trouvé la clef.",
        "No encontró la llave.",
        "他没有找到钥匙。",
        "彼は鍵を見つけなかった。",
        "The text does not mention a wife. " + "He lived with his dog at the cape. " * 12,
    ],
)
def test_answers_about_the_text(answer: str) -> None:
    assert not says_not_found(answer)


@pytest.mark.parametrize(
    ("value", "none"),
    [
        ("The text does not provide the capital of Mongolia, but it mentions a boat.", True),
        ("The text does not provide the number. However, it says that", True),
        ("The text you provided does not name the author", True),
        ("Answer: not found", True),
        ("- The text does not provide a date", True),
        ("Unknown.", True),
        ("None", True),
        ("The text, however, is by Anna Dirk", False),
        ("None of the boats", False),
        ("the unknown sailor", False),
        ("nothing but the truth", False),
    ],
)
def test_a_value_that_begins_with_there_being_none_is_none(value: str, none: bool) -> None:
    assert is_no_value(value) == none
