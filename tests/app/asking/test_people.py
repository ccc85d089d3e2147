"""Names of people: those of one person become one, and no two people do."""

import pytest

from app.asking.people import asks_for_people, persons


@pytest.mark.parametrize(
    ("names", "joined"),
    [
        (["Mr. Darcy", "Darcy", "Fitzwilliam Darcy"], "Fitzwilliam Darcy / Mr. Darcy / Darcy"),
        (["Elizabeth", "Elizabeth Bennet", "Miss Elizabeth"], "Elizabeth Bennet / Miss Elizabeth / Elizabeth"),
        (["Mattie Gormer", "Mrs. Gormer", "Mattie"], "Mattie Gormer / Mrs. Gormer / Mattie"),
        (["Mattie Gormer", "Mrs. Gormer", "Gormer"], "Mattie Gormer / Mrs. Gormer"),
        (["Mrs. George Dorset", "Mrs. Dorset"], "Mrs. George Dorset / Mrs. Dorset"),
        (["Lady Catherine de Bourgh", "Lady Catherine"], "Lady Catherine de Bourgh / Lady Catherine"),
        (["Vincent van Gogh", "van Gogh"], "Vincent van Gogh / van Gogh"),
        (["Edgar Allan Poe", "E. A. Poe", "E. Poe", "Poe"], "Edgar Allan Poe / E. A. Poe / E. Poe / Poe"),
        (["John R. Smith", "J. Smith"], "John R. Smith / J. Smith"),
        (["Smith", "J. Smith"], "J. Smith / Smith"),
        (["Dr. Watson", "Mr. Watson", "John Watson"], "John Watson / Dr. Watson / Mr. Watson"),
        (["Catherine of Aragon", "Catherine"], "Catherine of Aragon / Catherine"),
        (["Herr Settembrini", "Settembrini"], "Herr Settembrini / Settembrini"),
        (["Frau Chauchat", "Clawdia Chauchat"], "Clawdia Chauchat / Frau Chauchat"),
        (["Mlle Taillefer", "Victorine Taillefer"], "Victorine Taillefer / Mlle Taillefer"),
        (["Don Quijote", "Quijote"], "Don Quijote / Quijote"),
        (["达西先生", "菲茨威廉·达西"], "菲茨威廉·达西 / 达西先生"),
        (["ダーシーさん", "フィッツウィリアム・ダーシー"], "フィッツウィリアム・ダーシー / ダーシーさん"),
    ],
)
def test_names_of_one_person_become_one(names: list[str], joined: str) -> None:
    for given in (names, names[::-1]):
        told = persons(given)
        assert {*told} == {*joined.split(" / ")}
        assert {frozenset(each.split(" / ")) for each in told.values()} == {frozenset(told)}
        assert {each.split(" / ")[0] for each in told.values()} == {joined.split(" / ")[0]}, "the fullest is first"


@pytest.mark.parametrize(
    "names",
    [
        ["Elizabeth Bennet", "Jane Bennet", "Bennet", "Miss Bennet", "Mrs. Bennet"],
        ["Elizabeth Bennet", "Mr. Bennet", "Mrs. Bennet", "Bennet"],
        ["Mr. Bennet", "Mrs. Bennet", "Bennet"],
        ["Fitzwilliam Darcy", "Colonel Fitzwilliam", "Fitzwilliam"],
        ["Fitzwilliam Darcy", "Mr. Fitzwilliam"],
        ["Mr. John Smith", "Mrs. John Smith", "John Smith"],
        ["John Smith", "Jane Smith", "J. Smith", "Smith", "Mr. Smith"],
        ["George Bush", "George Walker Bush"],
        ["John Smith", "John Smith Jr."],
        ["Tom Sawyer", "Uncle Tom", "Tom"],
        ["John Smith", "R. Smith"],
        ["Captain Harville", "Mrs. Harville", "John Harville"],
        ["the old man", "a man", "man"],
        ["Jane", "Elizabeth and Jane"],
        ["Henry VII", "Henry VIII", "Henry"],
        ["Robin", "Robins", "Robinson"],
        ["Professor Brown", "Captain Brown", "Arthur Brown"],
        ["Frau Buddenbrook", "Herr Buddenbrook", "Thomas Buddenbrook"],
        ["Mrs. George Dorset", "George Dorset", "George"],
        ["Mrs. Tom Toller", "Tom"],
        ["Mrs. Toller", "Toller"],
        ["Sir Godwin Lydgate", "Mr. Lydgate"],
        ["达西先生", "达西小姐"],
        ["太太", "夫人"],
    ],
    ids=" ".join,
)
def test_names_that_may_be_of_two_people_stay_apart(names: list[str]) -> None:
    assert persons(names) == persons(names[::-1]) == {}


@pytest.mark.parametrize(
    ("question", "people"),
    [
        ("List all the characters.", True),
        ("Who are all the people?", True),
        ("Which people are there?", True),
        ("Wer ist wer?", True),
        ("Nenne alle Figuren.", True),
        ("Cite toutes les personnes.", True),
        ("Enumera todos los personajes", True),
        ("列出所有人物", True),
        ("登場人物をすべて挙げてください", True),
        ("List all the ships.", False),
        ("Wie viele Schiffe werden genannt?", False),
        ("列出所有的船", False),
    ],
)
def test_a_question_for_people_is_recognised(question: str, people: bool) -> None:
    assert asks_for_people(question) == people
