"""The suite: texts hold the answers, and each cell is measured once, whatever happens."""

from __future__ import annotations

import json
import lzma
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from benchmarks import options, real_suite
from benchmarks.asking import read
from benchmarks.haystack import DATA, NoProse
from benchmarks.scoring import contains
from benchmarks.suite import beside, command, main, qa, wordings
from benchmarks.suite.cells import OutOfTime, continued
from benchmarks.suite.links import LINKS
from benchmarks.suite.needles import MAKERS, Names, absent, counts, hops, listed, order, updated, variables
from benchmarks.suite.store import append, load
from benchmarks.suite.tables import rows_of, shown
from benchmarks.suite.tasks import Asked, NoRoom
from benchmarks.suite.texts import MOST_SETS, ROOM, Text, Texts
from engine import Model, make_method
from tests.engine.conftest import model as model  # the tiny model, as a fixture
from tests.engine.conftest import tiny_config
from training.pocket.prose import HELD_OUT_BOOKS
from training.pocket.words import phrases

shared_data = pytest.mark.skipif(not (DATA / "qa").is_dir(), reason="the texts of ../shared/data are not there")
FAMILIES = {"single", "keys", "values", "variables", "order", "unspoken", "two-hops", "three-hops", "list"}
FAMILIES |= {"updated", "absent", "counts"}
TOKENS = 8192  # characters, for the tiny model: room for all needles of one token a character, without qa


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder with small books and nothing else."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "books").mkdir()
    rng = random.Random(0)
    words = phrases("the| sea| was| calm| and| they| went| on| along| shore| until| evening| came| with| rain| over")
    with lzma.open(folder / "books" / "books.jsonl.xz", "wt") as file:
        for name in HELD_OUT_BOOKS:
            text = " ".join(" ".join(rng.choices(words, k=9)).capitalize() + "." for _ in range(200))
            file.write(json.dumps({"id": name, "text": text}) + "\n")
    return folder


@pytest.fixture
def names() -> Names:
    return Names(random.Random(1), "The prose.")


def stem(word: str) -> str:
    return word.lower()[:4]


COMMON = {"which", "person", "was", "were", "a", "an", "the", "in", "of", "and", "from", "to", "at"}


@pytest.mark.parametrize("link", LINKS, ids=lambda link: link.asked)
def test_what_is_unspoken_shares_no_word_with_its_question(link: Any) -> None:
    told, asked = (
        {stem(word) for word in re.findall(r"\w+", text) if word.lower() not in COMMON}
        for text in (link.told.format(""), link.asked)
    )
    assert not told & asked


@pytest.mark.parametrize("seed", range(5))
def test_the_sets_of_a_text_ask_nothing_twice_and_do_not_tell_their_answers(seed: int) -> None:
    names, asked_before = Names(random.Random(seed), "The prose."), set()
    for maker in MAKERS * MOST_SETS:
        for asked in maker(names).asked:
            assert not any(contains(asked.text, reference) for reference in asked.references)
            assert asked.text not in asked_before
            asked_before.add(asked.text)


def test_what_a_question_needs_holds_its_answer(names: Names) -> None:
    for maker in MAKERS * MOST_SETS:
        needles = maker(names)
        for asked in needles.asked:
            assert set(asked.needs) <= set(needles.statements)
            told = asked.family != "counts"  # they follow from the statements, and no statement has the number
            assert not told or all(any(contains(said, each) for said in asked.needs) for each in asked.references)
            answer = ", ".join(asked.references) or "The text does not say that."
            assert asked.scores(answer)["contained"] == 1.0


def test_what_is_changed_later_is_asked_for_as_it_is_now(names: Names) -> None:
    needles = updated(names)
    (asked,) = needles.asked
    assert contains(needles.statements[-1], asked.references[0])
    assert not contains(needles.statements[0], asked.references[0])


def test_a_fact_that_is_absent_can_only_be_refused(names: Names) -> None:
    needles = absent(names)
    (asked,) = needles.asked
    person = asked.text.split()[-1].rstrip("?")
    assert any(person in said for said in needles.statements)
    numbers = re.findall(r"\d+", " ".join(needles.statements))
    assert len(numbers) == 2
    assert not any(asked.scores(f"It is {number}.")["contained"] for number in numbers)


def test_a_count_is_right_in_figures_and_in_words(names: Names) -> None:
    needles = counts(names)
    (asked,) = needles.asked
    assert asked.references[0] == str(len(needles.statements))
    assert all(asked.scores(f"There were {each}.")["contained"] for each in asked.references)
    assert not asked.scores("There were nine.")["contained"]


def test_a_chain_of_variables_leads_to_its_value(names: Names) -> None:
    needles = variables(names)
    (asked,) = needles.asked
    holds: dict[str, str] = {}
    for said in needles.statements:
        name, value = re.fullmatch(r" VAR (\w+) = (?:VAR )?(\w+)\.", said).groups()  # type: ignore[union-attr]
        holds[name] = holds.get(value, value)
    wanted = re.search(r"\d+", asked.text.split("value")[1])
    assert wanted is not None
    assert {name for name, value in holds.items() if value == wanted[0]} == set(asked.references)


def test_the_kth_of_nearly_identical_sentences_is_asked_for(names: Names) -> None:
    needles = order(names)
    (asked,) = needles.asked
    place = ["first", "second", "third", "fourth", "fifth"].index(asked.text.split(" postcard")[0].split()[-1])
    assert contains(needles.statements[place], asked.references[0])


def test_hops_lead_from_a_thing_to_a_village_and_a_river(names: Names) -> None:
    needles = hops(names)
    said = " ".join(needles.statements)
    for asked in needles.asked:
        thing = re.search(r"owner of the (.+?) live", asked.text)
        assert thing is not None
        person = re.search(rf"The {thing[1]} belongs to (\w+)\.", said)
        assert person is not None
        village = re.search(rf"{person[1]} lives in the village of (\w+)\.", said)
        assert village is not None
        river = re.search(rf"village of {village[1]} lies on the river (\w+)\.", said)
        assert river is not None
        assert asked.references == ((village[1],) if asked.family == "two-hops" else (river[1],))


def test_of_lists_what_is_not_on_them_costs_precision(names: Names) -> None:
    needles = listed(names)
    (asked,) = needles.asked
    others = [said.rsplit(" ", 1)[1].rstrip(".") for said in needles.statements if said not in asked.needs]
    assert others
    scores = asked.scores(", ".join([*asked.references, *others]))
    assert scores["contained"] == 1.0
    assert scores["precision"] == pytest.approx(len(asked.references) / (len(asked.references) + len(others)))


def test_texts_are_fixed_by_length_and_seed(model: Model, data: Path) -> None:
    first, again = (Texts(model, data).make(TOKENS, 3) for _ in range(2))
    assert first.digest() == again.digest()
    assert torch.equal(first.ids, again.ids)
    assert first.asked == again.asked
    others = [Texts(model, data).make(TOKENS, 4), Texts(model, data).make(TOKENS + 1, 3)]
    assert len({first.digest(), *(other.digest() for other in others)}) == 3


def test_needles_lie_where_they_are_said_to_in_a_text_of_the_length(model: Model, data: Path) -> None:
    text = Texts(model, data).make(TOKENS, 1)
    assert len(model.chat.prefix) + len(text.ids) + ROOM == TOKENS
    assert {asked.family for asked in text.asked} == FAMILIES
    assert len(text.asked) >= 8
    for asked, spans in zip(text.asked, text.spans, strict=True):
        assert [model.decode(text.ids[start:end].tolist()) for start, end in spans] == list(asked.needs)
    starts = sorted(start for spans in text.spans for start, _ in spans)
    assert starts[0] < TOKENS / 3 < 2 * TOKENS / 3 < starts[-1]


def test_the_continuation_is_the_prose_behind_the_text(model: Model, data: Path) -> None:
    made = Texts(model, data)
    text = made.make(TOKENS, 1)
    end = model.decode(text.ids[-20:].tolist()) + model.decode(text.continuation.tolist())
    prose = " ".join(prose_of(data))
    assert " ".join(end.split())[:60] in prose + prose


def prose_of(data: Path) -> list[str]:
    with lzma.open(data / "books" / "books.jsonl.xz", "rt") as lines:
        return [json.loads(line)["text"] for line in lines]


def test_a_text_too_short_for_the_needles_is_refused_with_a_length_that_does(model: Model, data: Path) -> None:
    with pytest.raises(NoRoom, match="give --tokens") as refused:
        Texts(model, data).make(2000, 1)
    least = int(re.search(r"--tokens ([\d,]+)", str(refused.value))[1].replace(",", ""))  # type: ignore[index]
    assert Texts(model, data).make(least + 200, 1).asked  # names differ in length


@shared_data
def test_questions_over_qa_have_their_evidence_in_the_text_and_not_in_themselves() -> None:
    for source in qa.SOURCES:
        names, drawn = Names(random.Random(5), ""), set()
        for _ in range(25):
            needles = source.draw(names, DATA / "qa" / source.file, 4096)
            drawn.add(needles.statements[0])
            for asked in needles.asked:
                assert asked.needs == tuple(needles.statements)
                assert not any(contains(asked.text, reference) for reference in asked.references)
                if source.family != "tales":  # whose answers are in people's own words
                    assert contains(needles.statements[0], asked.references[0])
        assert len(drawn) == 25, "a passage stands in a text once"


@shared_data
def test_half_of_the_documents_stay_free_for_training() -> None:
    with lzma.open(DATA / "qa" / qa.TALES, "rt", encoding="utf-8") as lines:
        names = [json.loads(line)["id"] for line in lines]
    asked_about = {title for title, _, _ in qa.tales(DATA / "qa" / qa.TALES)}
    measured = {name.replace("-", " ") for name in names if qa.is_measured(name)}
    assert asked_about <= measured
    assert 0.3 < len(measured) / len(names) < 0.7


@shared_data
def test_the_model_that_ships_finds_single_needles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = f"--methods exact:budget=512 --tokens 4K --readings 1 --out {tmp_path / 'cells.jsonl'}"
    assert main(wanted.split()) == 0
    table, line = capsys.readouterr().out.rstrip().rsplit("\n", 1)
    rows = {row["family"]: row for row in json.loads(line)["rows"]}
    assert rows["single"]["contained"] >= 0.5
    assert rows["all"]["n"] == 21
    assert 10 < rows["perplexity"]["perplexity"] < 1000
    assert {"tales", "papers", "records"} <= set(rows)
    assert "21 (few)" in table


@pytest.fixture
def measured(model: Model, data: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by one for each text read; the model is tiny, texts and questions are cut."""
    seeds: list[int] = []
    measure = command.measure
    monkeypatch.setattr(options, "open_model", lambda chosen: model)

    def counted(model: Model, method: Any, text: Text, in_time: Any) -> dict[str, Any]:
        seeds.append(len(seeds))
        few = Text(text.ids[:700], text.asked[:2], text.spans[:2], text.continuation)
        return measure(model, method, few, in_time)

    monkeypatch.setattr(command, "measure", counted)
    return seeds


def run(data: Path, out: Path, options: str = "") -> None:
    wanted = "--methods streaming,truncate --budgets 512 --tokens 8K --readings 2"
    main(f"{wanted} --data {data} --out {out} {options}".split())


def cells(out: Path) -> list[dict[str, Any]]:
    return list(load(out).values())


def test_finished_cells_are_not_measured_again(
    measured: list[int], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "cells.jsonl"
    run(data, out)
    assert len(measured) == 4
    first = capsys.readouterr().out
    run(data, out)
    assert len(measured) == 4
    assert capsys.readouterr().out == first
    run(data, out, "--readings 3")
    assert len(measured) == 6
    assert len(out.read_text().splitlines()) == 6


def test_what_was_killed_while_writing_goes_on(measured: list[int], data: Path, tmp_path: Path) -> None:
    out = tmp_path / "cells.jsonl"
    run(data, out)
    whole = out.read_bytes()
    out.write_bytes(whole[:-100])
    run(data, out)
    assert len(measured) == 5
    assert len(cells(out)) == 4
    signatures = [json.loads(line)["signature"] for line in whole.decode().splitlines()]
    assert sorted(cell["signature"] for cell in cells(out)) == sorted(signatures)


def test_other_weights_settings_or_seeds_are_other_cells(
    measured: list[int], model: Model, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "cells.jsonl"
    run(data, out)
    run(data, out, "--seed 2")
    assert len(measured) == 8
    run(data, out, "--budgets 1/8")
    assert len(measured) == 12
    monkeypatch.setattr(model, "fingerprint", "another")
    run(data, out)
    assert len(measured) == 16


def test_time_that_is_over_stops_it_and_the_rest_comes_later(
    measured: list[int], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "cells.jsonl"
    ticks = iter(range(100_000))
    monkeypatch.setattr(command.time, "monotonic", lambda: next(ticks))
    run(data, out, "--minutes 0.25")  # of a clock that goes on by a second whenever it is looked at
    done = len(cells(out))
    assert 1 <= done < 4
    assert "goes on from here" in capsys.readouterr().err
    run(data, out)
    assert len(cells(out)) == 4
    assert len({cell["signature"] for cell in cells(out)}) == 4
    with pytest.raises(OutOfTime):
        command.deadline(0.0)()


def test_what_cannot_be_measured_is_left_out_with_the_reason(
    measured: list[int], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "cells.jsonl"
    run(data, out, "--methods infllm:units=4096,streaming")
    said = capsys.readouterr()
    (left,) = json.loads(said.out.splitlines()[-1])["left_out"]
    assert left["method"] == "infllm:units=4096"
    assert "leaves no window" in left["why"]
    assert "left out: tales." in said.err
    assert len(measured) == 2
    with pytest.raises(SystemExit):
        run(data, out, "--methods nosuch")
    with pytest.raises(NoProse, match="books"):
        run(tmp_path, out)


def test_answers_of_one_text_do_not_see_each_other(model: Model, data: Path) -> None:
    text = Texts(model, data).make(TOKENS, 1)
    method = options.variant("streaming", 512)
    turned = Text(text.ids, text.asked[3::-1], text.spans[3::-1], text.continuation)
    some = Text(text.ids, text.asked[:4], text.spans[:4], text.continuation)
    first, other = (command.measure(model, method, each, lambda: None) for each in (some, turned))
    assert first["questions"] == other["questions"][::-1]
    assert first["perplexity"] == other["perplexity"]


@pytest.mark.parametrize("name", ["full", "exact", "infinipot", "locret"])
def test_the_perplexity_is_that_of_the_model_itself(model: Model, name: str) -> None:
    """A method that keeps everything gives the perplexity of one pass over the whole text."""
    ids = torch.randint(4, 260, (301,), generator=torch.Generator().manual_seed(1))
    losses = continued(read(model, make_method(name, budget=None), ids[:101]).context(), ids[101:])
    every = torch.cat([torch.tensor(model.chat.prefix), ids])
    plain = LlamaForCausalLM(tiny_config()).eval()
    plain.load_state_dict(model.network.state_dict())
    with torch.no_grad():
        logits = plain(every[None]).logits[0]
    expected = torch.nn.functional.cross_entropy(logits[-200:-1], ids[102:], reduction="none")
    torch.testing.assert_close(losses.float(), expected, atol=1e-4, rtol=1e-4)


def cell(method: str, scores: list[float], losses: list[float]) -> dict[str, Any]:
    asked = [{"family": "single", "contained": score, "f1": score / 2, "exact": 0.0} for score in scores]
    sums = {"tokens": len(losses), "sum": sum(losses), "squares": sum(loss**2 for loss in losses)}
    named = {"model": "m", "method": method, "looks": 1, "tokens": 4096}
    return {**named, "questions": asked, "perplexity": sums}


def test_rows_pool_readings_and_say_when_there_are_few_questions() -> None:
    found = rows_of([cell("a", [1.0] * 20, [1.0, 3.0]), cell("a", [0.0] * 20, [2.0, 2.0]), cell("b", [1.0], [1.0])])
    rows = {(row["method"], row["family"]): row for row in found}
    pooled = rows["a", "all"]
    assert (pooled["n"], pooled["few"], pooled["readings"], pooled["contained"]) == (40, False, 2, 0.5)
    assert pooled["contained_95"] == [pytest.approx(0.352, abs=1e-3), pytest.approx(0.648, abs=1e-3)]
    assert rows["b", "single"]["few"]
    assert rows["a", "perplexity"]["perplexity"] == pytest.approx(7.389, abs=1e-3)
    low, high = rows["a", "perplexity"]["perplexity_95"]
    assert low < 7.389 < high
    lines = shown(found)
    assert lines[0]["n"] == "40"
    assert lines[0]["contained %"] == "50 [35 65]"
    assert any(line["n"] == "1 (few)" for line in lines)
    other = {key: value for key, value in cell("c", [1.0], []).items() if key != "perplexity"}
    assert [row["family"] for row in rows_of([other])] == ["all", "all needles", "single"]


def test_others_and_other_wordings_get_the_same_questions_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of both is a line of the file that the suite writes, and is not measured again."""
    out, given = tmp_path / "cells.jsonl", ["--model", "pocket", "--device", "cpu", "--tokens", "4K", "--readings", "1"]
    asked: list[list[Any]] = []

    def answers(python: Path, file: Path, chats: list[Any], window: int, threads: int) -> list[dict[str, Any]]:
        asked.append(chats)
        return [{"answer": "It is 7."} for _ in chats]

    monkeypatch.setattr(beside, "chat_answers", answers)
    llama = ["--llama-cpp-python", sys.executable, "--gguf", "a.gguf"]
    monkeypatch.setattr(
        wordings, "measure", lambda model, *_: {"questions": [], "seconds": {}, "at": model.chat.prefix}
    )
    for _ in range(2):
        beside.main([*given, "--data", str(data), "--out", str(out), *llama])
        wordings.main([*given, "--data", str(data), "--out", str(out), "--wordings", "now,bare"])
    other, now, bare = load(out).values()
    assert len(asked) == 1
    assert [each["question"] for each in other["questions"]] == [chat[0][1]["content"] for chat in asked[0]]
    assert now["at"] != bare["at"]


def test_any_reference_will_do_over_qa_and_all_are_wanted_of_values() -> None:
    one = Asked("tales", "?", ("a pig", "the sow"), (), any_of=True)
    all_of_them = Asked("values", "?", ("12", "13"), ())
    assert one.scores("The sow.") == {"contained": 1.0, "f1": 1.0, "exact": 1.0}
    assert all_of_them.scores("It is 12.")["contained"] == 0.5


@pytest.mark.parametrize(("budget", "entries"), [("1/4", 1024), ("1/8", 512), ("1K", 1024), ("300", 300)])
def test_budgets_are_entries_or_a_share_of_the_text(budget: str, entries: int) -> None:
    assert command.made("streaming", budget, 4096).budget == entries
    assert options.variant("infinitehip:stages=32:16:512:8 32:4:64:4", 512).settings()["stages"].startswith("32:16")


def test_a_preset_keeps_its_own_budget() -> None:
    assert command.made("infinitehip:preset=3k-flash", "1/4", 4096).budget == 5439
    assert command.made("infinipot:preset=pocket", "1/4", 4096).budget == 1024


@pytest.mark.parametrize("tokens", real_suite.LENGTHS)
def test_all_that_is_planned_for_real_models_can_be_made(tokens: int) -> None:
    planned = list(real_suite.plan(tokens, 32768))
    made = [command.made(*each) for each in planned]
    assert [method.name for method in made[:7]] == [
        "full", "exact", "infllm", "infinitehip", "infinipot", "streaming", "truncate"
    ]  # fmt: skip
    assert len({command.written(method) for method in made}) == len(made)
    assert any(method.settings().get("looks") == 1 for method in made)
    assert all(method.budget is None or method.budget < tokens for method in made)
    assert "full" not in {name for name, _, _ in real_suite.plan(tokens, tokens - 1)}


def test_a_written_method_can_be_asked_for_again() -> None:
    for tokens in real_suite.LENGTHS:
        for each in real_suite.plan(tokens, 1 << 20):
            method = command.made(*each)
            assert options.variant(command.written(method), None).settings() == method.settings()


def test_lines_stand_alone_in_the_file(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "cells.jsonl"
    append(out, {"signature": "a", "n": 1})
    with out.open("a") as file:
        file.write('{"signature": "cut')
    append(out, {"signature": "b"})
    append(out, {"signature": "a", "n": 2})
    assert load(out) == {"a": {"signature": "a", "n": 2}, "b": {"signature": "b"}}
    assert load(tmp_path / "none") == {}
