"""Plans on the command line, for this machine and for others."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import engine
from app.cli import main
from app.machine.planning import measured_rates, method_in_words
from tests.app.helpers import QWEN, book_text, run_main
from tests.engine.architectures import small_config

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


def planned(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(run_main(capsys, *arguments, "--json")[1])
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

    status, text = run_main(capsys, *given, "--host", "64GiB")
    assert status == 0
    assert "infinipot" in text
    assert "Best here: " in text
    assert run_main(capsys, *given[:-1], "2GiB")[0] == 1


def test_a_model_that_was_published_quantised_is_planned_as_it_is(
    config_only: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The packages that load it are not needed for that."""
    published = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
    (config_only / "config.json").write_text(json.dumps({**QWEN, "quantization_config": published}))
    given = ("plan", "--home", tmp_path / "home", "--model", config_only, "--tokens", "20K", "--gpu", "8GiB")
    result = planned(capsys, *given, "--host", "16GiB")
    assert result["plans"][0]["bytes"]["weights"] == pytest.approx(5.57e9, rel=0.01)  # Qwen2.5-7B-Instruct-AWQ
    assert (result["published"]["bits"], result["best"]["quantize"]) == (4, "none")
    assert "in 4 bits (awq)" in run_main(capsys, *given)[1]
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
    """The status was 0, with praise of another method, although the named one does not fit."""
    given = ("plan", "--home", tmp_path, "--model", config_only, "--tokens", "1M", "--gpu", "24GiB", "--host", "64GiB")
    [full] = planned(capsys, *given, "--method", "full")["plans"]
    best = planned(capsys, *given)["best"]
    assert planned(capsys, *given, "--method", "full")["best"] == best
    status, text = run_main(capsys, *given, "--method", "full")
    assert status == 1
    assert f"full does not fit; up to {full['longest_tokens']:,} tokens would." in text
    assert text.splitlines()[-1].startswith(f"Best of all methods: {best['method']}")
    status, text = run_main(capsys, *given, "--method", "infinipot")
    assert (status, " fits.\n" in text) == (0, True)
    status, text = run_main(capsys, *given[:7], "--gpu", "1GiB", "--host", "1GiB", "--method", "full")
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
    """The reason was followed by the advice to choose a smaller budget."""
    small_config("qwen3_5_text").save_pretrained(tmp_path / "model")
    given = ("plan", "--home", tmp_path, "--model", tmp_path / "model", "--device", "cpu", "--tokens", "20K")
    status, text = run_main(capsys, *given, "--method", "beacon")
    table, reason, best = text.strip().split("\n\n")[1:]
    assert (status, table.splitlines()[1].split()[2]) == (1, "never")
    assert reason.startswith("beacon puts tokens of its own between those of a text")
    assert reason.endswith("choose another method.")
    assert best.startswith("Best of all methods: ")


def test_what_fits_and_forgets_is_not_recommended(
    config_only: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the weights and a baseline of a few entries fit."""
    given = ("plan", "--home", tmp_path, "--model", config_only, "--quantize", "nf4", "--tokens", "1M")
    given = (*given, "--method", "truncate", "--budget", "300", "--set", "tail=32", "--host", "1GiB")
    status, text = run_main(capsys, *given, "--gpu", "6.80GB")
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
    text = run_main(capsys, *given)[1]
    assert "if trained" in text
    assert text.count("stockpot train locret") == 1
    assert not any(
        plan["lacks"] for plan in planned(capsys, *given[:3], "--tokens", "20K")["plans"]
    )  # the pocket model


def test_heads_that_ship_are_recommended_where_not_everything_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """InfiniPot was recommended for its larger budget, although the pocket model answers badly with it."""
    given = ("plan", "--home", tmp_path, "--device", "cpu", "--tokens", "1M", "--host", "300MB")
    best = planned(capsys, *given)["best"]
    assert (best["method"], best["settings"]["budget"]) == ("locret", 1024)
    assert "trained for this model" in best["reason"]


def test_a_budget_beyond_what_the_model_was_trained_for_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pocket model, trained for 2,048 tokens, got nothing right with 4,096 entries, and there was no warning."""
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
