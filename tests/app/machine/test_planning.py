"""Plans on the command line and before every reading, and the list of models."""

import json
import os
import re
import shutil
import stat
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import engine
from app.cli import main
from app.errors import AppError
from app.home import canonical_model, model_source, named_model, split_model
from app.jobs.worker import Worker
from app.machine.local_models import local_models
from app.machine.planning import estimate, measured_rates, method_in_words, require_memory
from app.machine.recommended import RECOMMENDED
from app.reading.documents import IngestOptions, add_documents
from app.reading.readings import read
from app.service import Service
from app.web.actions import Actions
from app.web.tab_state import TabState
from tests.app.helpers import begin, book_text
from tests.engine.test_architectures import small_config

PLAN = {
    "method",
    "settings",
    "quantize",
    "fits",
    "possible",
    "lacks",
    "beyond",
    "longest_tokens",
    "chunk",
    "entries",
    "bytes",
    "reading_seconds",
    "reading_tokens_per_second",
    "first_token_seconds",
    "answer_tokens_per_second",
}
QWEN = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 131072,
    "dtype": "bfloat16",
    "tie_word_embeddings": False,
}


@pytest.fixture
def config_only(tmp_path: Path) -> Path:
    """Qwen2.5-7B's shape: a folder with a config.json and nothing else."""
    folder = tmp_path / "Qwen2.5-7B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(QWEN))
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    status = main([str(each) for each in arguments])
    return status, capsys.readouterr().out


def planned(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(run(capsys, *arguments, "--json")[1])
    return result


def test_a_config_is_enough_to_plan_for_a_gpu_that_is_not_there(
    config_only: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("plan", "--home", tmp_path / "home", "--model", config_only, "--tokens", "1M", "--gpu", "24GiB")
    result = planned(capsys, *given, "--host", "64GiB", "--rates", "80,900,20")
    assert result["tokens"] == 1 << 20
    assert result["parameters"] == 7_615_616_512
    assert result["limits"] == {"device": 24 << 30, "host": 64 << 30}
    assert {plan["method"] for plan in result["plans"]} == set(engine.METHODS)
    assert all(set(plan) == PLAN for plan in result["plans"])
    by_name = {plan["method"]: plan for plan in result["plans"]}
    assert by_name["exact"]["bytes"]["kv"]["host"] == pytest.approx(
        57344 * ((1 << 20) + 32), rel=1e-3
    )  # 56 KiB a token
    assert not by_name["full"]["fits"]
    assert by_name["infinipot"]["longest_tokens"] is None
    assert result["best"]["fits"]
    assert result["best"]["reading_seconds"] > 0
    assert not (tmp_path / "home" / "rates.json").exists()  # this machine's rates say nothing of that one

    status, text = run(capsys, *given, "--host", "64GiB")
    assert status == 0
    assert "infinipot" in text
    assert "Best here: " in text
    assert run(capsys, *given[:-1], "2GiB")[0] == 1


def test_a_model_that_was_published_quantised_is_planned_as_it_is(
    config_only: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And without the packages that loading it takes."""
    published = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
    (config_only / "config.json").write_text(json.dumps({**QWEN, "quantization_config": published}))
    given = ("plan", "--home", tmp_path / "home", "--model", config_only, "--tokens", "20K", "--gpu", "8GiB")
    result = planned(capsys, *given, "--host", "16GiB")
    assert result["plans"][0]["bytes"]["weights"] == pytest.approx(5.57e9, rel=0.01)  # Qwen2.5-7B-Instruct-AWQ
    assert (result["published"]["bits"], result["best"]["quantize"]) == (4, "none")
    assert "in 4 bits (awq)" in run(capsys, *given)[1]
    assert main([str(each) for each in (*given, "--quantize", "nf4")]) == 2
    assert "quantised already" in capsys.readouterr().err


def test_a_model_that_was_published_in_fp8_is_planned_as_a_plain_one(
    config_only: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("plan", "--home", tmp_path / "home", "--model", config_only, "--tokens", "20K", "--gpu", "24GiB")
    given = (*given, "--host", "16GiB")
    plain = [planned(capsys, *given, *quantize) for quantize in ((), ("--quantize", "nf4"))]
    published = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    (config_only / "config.json").write_text(json.dumps({**QWEN, "quantization_config": published}))
    assert [planned(capsys, *given, *quantize) for quantize in ((), ("--quantize", "nf4"))] == plain
    assert plain[0]["plans"][0]["bytes"]["weights"] == pytest.approx(15.2e9, rel=0.01)  # Qwen2.5-7B in bfloat16


def test_a_plan_for_one_method_with_its_settings(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("plan", "--home", tmp_path, "--model", tiny, "--device", "cpu", "--tokens", "20_000")
    result = planned(capsys, *given, "--method", "infinipot", "--budget", "512", "--set", "keep=0.25")
    [plan] = result["plans"]
    assert plan["settings"]["keep"] == 0.25
    assert plan["fits"]
    assert plan["entries"]["device"] <= 512
    kept = json.loads((tmp_path / "rates.json").read_text())
    assert [set(each) for each in kept.values()] == [
        {"flops", "memory", "link", "host_flops", "host_memory", "operation_sec"}
    ]
    packed = planned(capsys, *given, "--quantize", "nf4")
    assert packed["model"] == f"{tiny}:nf4"
    assert packed["plans"][0]["bytes"]["weights"] < plan["bytes"]["weights"]


def test_a_plan_for_one_method_is_about_that_method(
    config_only: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended with 0, and with the praise of another method, where the one that was asked for does not fit."""
    given = ("plan", "--home", tmp_path, "--model", config_only, "--tokens", "1M", "--gpu", "24GiB", "--host", "64GiB")
    [full] = planned(capsys, *given, "--method", "full")["plans"]
    best = planned(capsys, *given)["best"]
    assert planned(capsys, *given, "--method", "full")["best"] == best
    status, text = run(capsys, *given, "--method", "full")
    assert status == 1
    assert f"full does not fit; up to {full['longest_tokens']:,} tokens would." in text
    assert text.splitlines()[-1].startswith(f"Best of all methods: {best['method']}")
    status, text = run(capsys, *given, "--method", "infinipot")
    assert (status, " fits.\n" in text) == (0, True)
    status, text = run(capsys, *given[:7], "--gpu", "1GiB", "--host", "1GiB", "--method", "full")
    assert (status, "full does not fit; nor would a shorter text." in text) == (1, True)
    assert "Nothing fits" in text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"preset": "wide"}, "exact with a budget of 6,144"),
        ({"store": "int4", "sketch": "int2"}, "exact with a budget of 512, store=int4, sketch=int2"),
        ({"preset": "sketched", "sketch": "int4"}, "exact with a budget of 3,072, preset=sketched, sketch=int4"),
    ],
)
def test_what_is_recommended_says_what_is_to_be_set(settings: dict[str, Any], words: str) -> None:
    assert method_in_words("exact", engine.make_method("exact", **settings).settings()) == words


def test_what_can_never_be_is_not_said_to_be_too_large(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After the reason came that it did not fit, and a smaller budget to choose."""
    small_config("qwen3_5_text").save_pretrained(tmp_path / "model")
    given = ("plan", "--home", tmp_path, "--model", tmp_path / "model", "--device", "cpu", "--tokens", "20K")
    status, text = run(capsys, *given, "--method", "beacon")
    table, reason, best = text.strip().split("\n\n")[1:]
    assert (status, table.splitlines()[1].split()[2]) == (1, "never")
    assert reason.startswith("beacon puts tokens of its own between those of a text")
    assert reason.endswith("choose another method.")
    assert best.startswith("Best of all methods: ")


def test_what_fits_and_forgets_is_not_recommended(
    config_only: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is room for the weights and for a baseline of a few entries."""
    given = ("plan", "--home", tmp_path, "--model", config_only, "--quantize", "nf4", "--tokens", "1M")
    given = (*given, "--method", "truncate", "--budget", "300", "--set", "tail=32", "--host", "1GiB")
    status, text = run(capsys, *given, "--gpu", "6.45GB")
    assert (status, " fits.\n" in text) == (0, True)
    assert text.endswith("Of what fits, nothing is recommended.\n")


def test_methods_that_lack_trained_weights_are_planned_and_not_recommended(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("plan", "--home", tmp_path, "--model", tiny, "--device", "cpu", "--tokens", "20K")
    result = planned(capsys, *given)
    lacking = {plan["method"]: plan["lacks"] for plan in result["plans"] if plan["lacks"]}
    assert set(lacking) == {"locret", "recall", "beacon"}
    assert "--set gist=infinipot needs none" in lacking["recall"]
    assert "stockpot train locret" in lacking["locret"]
    assert "stockpot train beacon" in lacking["beacon"]
    text = run(capsys, *given)[1]
    assert "if trained" in text
    assert text.count("stockpot train locret") == 1
    assert not any(
        plan["lacks"] for plan in planned(capsys, *given[:3], "--tokens", "20K")["plans"]
    )  # the pocket model


def test_heads_that_ship_are_recommended_where_not_everything_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was InfiniPot, of which the pocket model makes next to nothing, because its budget may be larger."""
    given = ("plan", "--home", tmp_path, "--device", "cpu", "--tokens", "1M", "--host", "300MB")
    best = planned(capsys, *given)["best"]
    assert (best["method"], best["settings"]["budget"]) == ("locret", 1024)
    assert "trained for this model" in best["reason"]


def test_a_budget_beyond_what_the_model_was_trained_for_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pocket model, trained for 2,048 tokens, answered nothing right with 4,096 entries, and nobody was told."""
    book = tmp_path / "book.txt"
    book.write_text(book_text(120))
    given = ("--home", tmp_path / "home", "--json")
    warnings = []
    for settings in (("exact", "--budget", "2048"), ("exact", "--budget", "4096"), ("full",)):
        assert main([str(each) for each in ("ingest", book, *given, "--method", *settings)]) == 0
        out, err = capsys.readouterr()
        warnings.append(json.loads(out)["warnings"])
        assert re.findall("warning: (.+)", err) == warnings[-1]
    assert warnings[0] == []
    assert "trained for 2,048 tokens" in warnings[1][0]
    assert "choose a budget of at most 2,048" in warnings[1][0]
    assert "choose one with a budget" in warnings[2][0]
    plans = planned(capsys, "plan", *given[:2], "--tokens", "20K")["plans"]
    assert [plan["method"] for plan in plans if plan["beyond"]] == ["full"]
    assert not any(plan["beyond"] for plan in planned(capsys, "plan", *given[:2], "--tokens", "1K")["plans"])


def test_weights_that_a_method_lacks_are_missed_before_the_model_is_loaded(
    service: Service, tiny: Path, book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, broken = str(tiny), tmp_path / "no weights"
    shutil.copytree(tiny, broken)
    (broken / "model.safetensors").write_bytes(b"never read")
    with pytest.raises(engine.WeightsError, match="--set gist=infinipot needs none"):
        begin(service, [], "recall", {}, whole)
    with pytest.raises(engine.WeightsError, match="stockpot train locret"):
        begin(service, [], "locret", {}, whole)
    with pytest.raises(AppError, match="stockpot train beacon"):
        estimate(whole, engine.make_method("beacon"), service.home, "cpu", loaded=False)
    assert service.models.held is None
    given = ("--home", str(tmp_path / "home"), "--model", str(broken), "--device", "cpu", "ingest", str(book))
    assert main([*given, "--method", "recall"]) == 1
    assert "--set gist=infinipot needs none" in capsys.readouterr().err
    assert main([*given, "--method", "full"]) == 1
    assert "damaged" in capsys.readouterr().err


def test_what_cannot_fit_is_refused_before_weights_are_read(
    service: Service, tiny: Path, book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [row.id for row in add_documents(service, [book], IngestOptions(), lambda *_: None).documents]
    broken = tmp_path / "no weights"
    shutil.copytree(tiny, broken)
    (broken / "model.safetensors").write_bytes(b"never read")
    free_memory(monkeypatch, 2_000_000)
    with pytest.raises(AppError, match=r"tokens with full needs .* What would fit: infinipot"):
        begin(service, ids, "full", {}, str(broken))
    free_memory(monkeypatch, 10**10)
    with pytest.raises(engine.ModelNotFound, match="damaged"):
        begin(service, ids, "full", {}, str(broken))
    assert service.store.contexts() == []


@pytest.mark.parametrize(("asked", "offered"), [("", "8bit"), (":8bit", "8bit"), (":nf4", "nf4")])
def test_a_refusal_names_weights_of_fewer_bits(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, offered: str
) -> None:
    """It said to close other programs, where the same text would have been kept whole beside weights in 8 bits."""
    monkeypatch.setenv("STOCKPOT_DTYPE", "float32")  # whatever this processor is fast in
    folder = tmp_path / "llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(QWEN))
    free_memory(monkeypatch, 25 * 10**9)
    method, chat = engine.make_method("full"), service.models.chat(service.models.default)
    with pytest.raises(AppError) as refused:
        require_memory(f"{folder}{asked}", method, 300_000, chat, "cpu")
    words = f" and weights in {offered} (:{offered} behind the model's name)"
    assert (words in str(refused.value)) == (asked != f":{offered}")
    assert "What would fit: " in str(refused.value)


@pytest.mark.parametrize("content", ["{broken", "[]"])
def test_rates_are_measured_once_and_a_broken_file_is_replaced(
    tmp_path: Path, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr("engine.planning.rates.LEAST_SEC", 0.001)
    here = torch.device("cpu"), torch.float32
    first = measured_rates(tmp_path, *here)
    assert measured_rates(tmp_path, *here) == first
    (tmp_path / "rates.json").write_text(content)
    again = measured_rates(tmp_path, *here)
    assert again.flops > 0
    assert asdict(again) in json.loads((tmp_path / "rates.json").read_text()).values()


def test_nobody_else_can_look_into_a_home_that_a_plan_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was for everybody to read, and stayed so when documents came into it."""
    import torch

    rates = engine.Rates(1e9, 1e9, 1e9, host_flops=1e9, host_memory=1e9)
    monkeypatch.setattr(engine, "measure_rates", lambda *given: rates)
    home = tmp_path / "home"
    before = os.umask(0o022)
    try:
        assert measured_rates(home, torch.device("cpu"), torch.float32) == rates
    finally:
        os.umask(before)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert (home / "rates.json").exists()


def test_a_model_is_named_with_its_quantisation(tiny: Path) -> None:
    assert split_model("org/model:nf4") == ("org/model", "nf4")
    assert split_model("C:/models/x") == ("C:/models/x", "none")
    assert named_model(None, "nf4") == "pocket:nf4"
    assert named_model("x:8bit", "none") == "x"
    assert named_model("x:8bit", None) == "x:8bit"
    assert canonical_model(f"{tiny}:nf4") == f"{tiny}:nf4"
    assert model_source("pocket:nf4") == model_source("pocket")


def free_memory(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=size, total=size))


def test_what_cannot_fit_is_refused_before_reading_and_told_what_would(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [row.id for row in add_documents(service, [book], IngestOptions(), lambda *_: None).documents]
    service.models.get()
    free_memory(monkeypatch, 2_000_000)
    with pytest.raises(AppError, match=r"tokens with full needs .* What would fit: infinipot") as refused:
        begin(service, ids, "full", {})
    assert "tokens with full." in str(refused.value)
    assert service.store.contexts() == []
    free_memory(monkeypatch, 1000)
    with pytest.raises(AppError, match="smaller model"):
        begin(service, ids, "full", {})


def test_a_small_text_is_not_hindered_where_little_memory_is_free(
    service: Service, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [row.id for row in add_documents(service, [book], IngestOptions(), lambda *_: None).documents]
    service.models.get()
    free_memory(monkeypatch, 64_000_000)
    row = begin(service, ids, engine.DEFAULT_METHOD, {})
    assert read(service, row.id, lambda report: None).status == "ready"


def test_what_to_expect_is_said_before_there_is_a_text(
    service: Service, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(method: str, name: str = str(tiny), *, loaded: bool = False, **settings: Any) -> str:
        return estimate(name, engine.make_method(method, **settings), service.home, "cpu", loaded=loaded)

    times = r"a book is read at about [\d.,]+( M)? tokens/s, and answers begin after \d+(\.\d)? m?s"
    expected = rf"Fits a text of any length here; by the plan, {times}\."
    assert re.fullmatch(expected, said("infinipot"))
    assert "trained for 4,096 tokens: expect poor answers of longer texts with full" in said("full")
    free_memory(monkeypatch, 3_500_000)
    weights_count, loaded = (tokens_in(said("full", loaded=loaded)) for loaded in (False, True))
    assert 0 < weights_count < loaded < 10_000
    assert tokens_in(said("full", f"{tiny}:8bit")) > weights_count
    free_memory(monkeypatch, 100_000)
    with pytest.raises(AppError, match=r"100,000 tokens with infinipot needs .* of memory, and there are 100.0 kB"):
        said("infinipot")
    free_memory(monkeypatch, 10**10)
    monkeypatch.setattr("sessions.files.shutil.disk_usage", lambda path: SimpleNamespace(free=10**6))
    assert tokens_in(said("exact")) < 4_000  # 256 bytes a token have to be saved
    assert service.models.held is None
    assert "is not on this machine" in said("full", "nobody/has-this")  # and nobody is asked for it


def test_a_broken_model_is_listed_with_the_reason_and_hides_no_other(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "home" / "models"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "none"))
    for name in ("whole", "cut", "config", "tokenizer", "vocabulary", "unreadable"):
        shutil.copytree(tiny, models / name)
    (models / "cut" / "model.safetensors").write_bytes(b"")
    (models / "config" / "config.json").write_text("[1]")
    (models / "tokenizer" / "tokenizer.json").write_text("{}")
    (models / "unreadable" / "config.json").write_bytes(b"\xff\xfe")
    config = models / "vocabulary" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "vocab_size": 10}))
    reasons = {Path(each.name).name: each.reason for each in local_models(tmp_path / "home")}
    assert reasons["whole"] == ""
    for name, words in (
        ("cut", "model.safetensors is damaged"),
        ("config", "config.json cannot be read"),
        ("tokenizer", "no tokenizer that can be loaded"),
        ("vocabulary", "vocab_size"),
        ("unreadable", "config.json cannot be read"),
    ):
        assert words in reasons[name]


def test_the_form_offers_models_in_all_their_bits_and_says_why_others_cannot_be_used(
    service: Service, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(service.home / "none"))
    actions, models = Actions(service, Worker(service), TabState(service), [], [], []), service.home / "models"
    shutil.copytree(tiny, models / "whole")
    choices, unusable = actions.find_models()
    offered = {value: label for label, value in choices["choices"]}
    assert {str(models / "whole"), f"{models / 'whole'}:8bit", f"{models / 'whole'}:nf4"} <= set(offered)
    assert re.fullmatch(r"whole in 8 bits · [\d.]+ kB", offered[f"{models / 'whole'}:8bit"])
    assert unusable == ""
    broken = models / "<b>broken"
    shutil.copytree(tiny, broken)
    (broken / "model.safetensors").unlink()
    choices, unusable = actions.find_models()
    assert {value: label for label, value in choices["choices"]} == offered
    assert "1 model on this machine cannot be used" in unusable
    assert "<b>&lt;b&gt;broken</b>: There are no weights" in unusable
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not any(value.endswith(":nf4") for _, value in actions.find_models()[0]["choices"])


def tokens_in(line: str) -> int:
    found = re.match(r"Fits up to about ([\d,]+) tokens here", line)
    assert found, line
    return int(found[1].replace(",", ""))


def a_document(service: Service) -> str:
    row = service.store.add_document(
        sha256="0" * 64, title="A", format="txt", pages=1, characters=3, content={}, file=None
    )
    return row.id


def test_the_form_says_what_to_expect_or_why_not(service: Service) -> None:
    keys = [("infinipot", "budget"), ("exact", "budget"), ("infinipot", "keep")]
    actions = Actions(service, Worker(service), TabState(service), keys, ["infinipot"], [])
    form = ("infinipot", None, 512, 512)
    assert actions.estimate(*form, 0.25)[0].startswith('<p class="quiet" role="status">Fits ')
    for tokens, seconds in ((18_000, 4.0), (900, 9.0)):  # what came last is too short to say anything of a book
        row = service.store.add_context(
            model=service.models.default,
            method="infinipot",
            settings=engine.make_method("infinipot", budget=512, keep=0.25).settings(),
            budget=512,
            fingerprint="0" * 64,
            document_ids=[a_document(service)],
            tokens=tokens,
        )
        service.store.update_context(row.id, tokens_read=tokens, seconds=seconds)
    assert "the last like this was read at about 4,500 tokens/s" in actions.estimate(*form, 0.25)[0]
    assert "by the plan" in actions.estimate(*form, 0.5)[0]
    for method, budget, model, keep, words in (
        ("infinipot", 512, None, 7, "keep"),
        ("exact", 3, "", 0.25, "budget of 3"),
        ("exact", 512, "<b>/none", 0.25, "&lt;b&gt;/none is not on this machine"),
    ):
        [line] = actions.estimate(method, model, budget, budget, keep)
        assert words in line
        assert "Fits" not in line


def test_models_that_are_here_are_listed_with_their_needs(
    tiny: Path, config_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, cache = tmp_path / "home", tmp_path / "hub"
    shutil.copytree(tiny, home / "models" / "tiny")
    shutil.copytree(config_only, home / "models" / "without-weights")
    kept = cache / "models--some--one"
    shutil.copytree(tiny, kept / "snapshots" / "0123abc")
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("0123abc")
    (kept / "blobs").mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    found = {each.name: each for each in local_models(home)}
    assert set(found) >= {"pocket", str(home / "models" / "tiny"), str(home / "models" / "without-weights")}
    mine = found[str(home / "models" / "tiny")]
    assert (mine.place, mine.architecture, mine.reason, mine.window) == ("home", "llama", "", 4096)
    assert mine.weight_bytes["none"] == 2 * mine.parameters
    assert mine.entry_bytes == 2 * 2 * 2 * 16 * 2  # key and value, 2 layers, 2 KV heads of 16, bfloat16
    assert "weights" in found[str(home / "models" / "without-weights")].reason
    assert found["some/one"].place == "cache"
    status, text = run(capsys, "models", "--home", home)
    assert status == 0
    assert "pocket" in text
    assert str(tiny) not in text
    named = run(capsys, "models", "--home", home, "--model", tiny)[1]
    assert [line for line in named.splitlines() if str(tiny) in line and "named" in line]
    listed = json.loads(run(capsys, "models", "--home", home, "--json")[1])
    assert {each["name"]: each["usable"] for each in listed}["some/one"]
    assert {each["name"] for each in listed if each["place"] == "hub"} == {each.name for each in RECOMMENDED}
    assert all(each.name in text for each in RECOMMENDED)
