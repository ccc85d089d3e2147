"""Chat templates and tokenizers: where a text goes, and which are refused."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest
from tokenizers import normalizers

from engine import load_chat, read_config
from engine.errors import UnsupportedModel
from engine.models import template_process
from engine.models.chat import INSTRUCTION, Chat
from tests.engine.conftest import byte_tokenizer, tiny_config


def test_a_template_without_a_system_role_gets_the_text_in_the_first_question() -> None:
    tokenizer = byte_tokenizer()
    assert isinstance(tokenizer.chat_template, str)
    tokenizer.chat_template = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}" + (
        tokenizer.chat_template
    )
    chat = Chat(tokenizer)
    assert tokenizer.decode(chat.prefix) == "<|bos|><|user|>" + INSTRUCTION
    assert tokenizer.decode(chat.turn("Who?")) == "\n\nWho?<|assistant|>"
    assert tokenizer.decode(chat.turn("Who?", first=False)) == "<|end|><|user|>Who?<|assistant|>"


MOVED = """{% set told = messages[0]['content'] if messages[0]['role'] == 'system' else '' %}<|bos|>
{%- for m in messages %}{% if m['role'] == 'user' %}<|user|>
{%- if loop.last and told %}{{ told }}\n{% endif %}{{ m['content'] }}
{%- elif m['role'] == 'assistant' %}<|assistant|>{{ m['content'] }}<|end|>{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
DROPPED = """<|bos|>{% for m in messages %}{% if m['role'] == 'user' %}<|user|>{{ m['content'] }}<|assistant|>
{%- elif m['role'] == 'assistant' %}{{ m['content'] }}<|end|>{% endif %}{% endfor %}"""


@pytest.mark.parametrize("template", [MOVED, DROPPED], ids=["moved to the last question", "dropped"])
def test_a_template_that_does_not_leave_the_system_message_in_its_place_gets_the_text_in_the_first_question(
    template: str,
) -> None:
    """Regression: Mistral-7B-v0.3 moves it to the last user turn, so later questions held the text's placeholder."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    chat = Chat(tokenizer)
    assert tokenizer.decode(chat.prefix) == "<|bos|><|user|>" + INSTRUCTION
    assert tokenizer.decode(chat.turn("Who?")) == "\n\nWho?<|assistant|>"
    assert tokenizer.decode(chat.turn("Who?", first=False)) == "<|end|><|user|>Who?<|assistant|>"


LOOP = "{% for i in range(99999) %}"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('not for you') }}", "not for you"),
        ("{% for m in messages %}{{ m.content }", "unexpected '}'"),
        ("{% for m in messages %}{{ m.foo.bar }}{% endfor %}", "no attribute 'foo'"),
        ("{% for m in messages %}{{ m.content + 1 }}{% endfor %}", "can only concatenate str"),
        ({"tool_use": "{{ messages }}"}, "no default"),
        (7, "it is 7, and no text"),
        ("{{ messages[-1].content }}", "drops"),
        ("{% for m in messages[1:] %}{{ m.content }}{% endfor %}{{ messages[0].content }}", "order"),
        ("{% for m in messages %}{{ m.content | upper }}{% endfor %}", "drops"),
        (f"{LOOP}{LOOP}{{% endfor %}}{{% endfor %}}", "does not end within"),  # without filling the memory
        (f"{{# {'long ' * 300_000} #}}", "characters, more than"),
    ],
)
def test_a_template_that_fails_or_loses_the_text_is_refused_with_the_cause(template: Any, words: str) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(UnsupportedModel, match=rf"chat template cannot be used: .*{words}"):
        Chat(tokenizer)


def test_a_template_that_takes_all_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_process, "RENDER_SEC", 30.0)  # a busy machine may take that long to fill 256 MiB
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{% set n = namespace(s='x' * 4096) %}" + LOOP + "{% set n.s = n.s ~ n.s %}{% endfor %}"
    with pytest.raises(UnsupportedModel, match="MiB of memory"):
        Chat(tokenizer)


N = 10**9
SINGLE_CALLS = (
    *("{{ 'x' * N }}", "{{ 'x' * 10**10 }}", "{% set a = [0] * N %}", "{{ 7 ** N }}", "{{ '%Nd' % 1 }}"),
    *("{{ '{:>N}'.format(1) }}", "{{ '%Ns'|format('x') }}", "{{ 'x'.center(N) }}", "{{ 'x'|center(N) }}"),
    *("{{ 'x'.ljust(N) }}", "{{ 'x'.zfill(N) }}", "{{ '\\t'.expandtabs(N) }}", "{{ 'x\\nx'|indent(N) }}"),
    *("{{ ('x' * 1000000).replace('x', 'x' * 10000) }}", "{{ (['x'] * 1000000)|join('x' * 10000) }}"),
    *("{{ messages|tojson(indent=N) }}", "{{ lipsum(n=N) }}", "{{ (range(99999)|list * 1000)|sort }}"),
    *("{{ ('x' * 1000)|batch(N, 'x')|list }}", "{{ messages|slice(N)|list }}", "{{ 'x' * 9000000 }}"),
)


@pytest.mark.parametrize("template", SINGLE_CALLS)
def test_a_single_call_of_a_template_is_stopped(template: str) -> None:
    tokenizer = byte_tokenizer()
    assert isinstance(tokenizer.chat_template, str)
    before = resource.getrusage(resource.RUSAGE_SELF)
    tokenizer.chat_template = template.replace("N", str(N)) + tokenizer.chat_template
    with pytest.raises(UnsupportedModel, match="chat template cannot be used") as refused:
        Chat(tokenizer)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert len(str(refused.value)) < 400
    assert after.ru_maxrss - before.ru_maxrss < 100 << 10
    assert after.ru_utime - before.ru_utime < 1


TRANSFORMERS_WAYS = """{%- macro told(m) -%}{{ m['content'] | trim }}{%- endmacro %}
    {% set ns = namespace(n=0) %}
{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ bos_token if loop.first }}
    {%- if m.role == 'assistant' %}{% generation %}{{ told(m) }}{% endgeneration %}
    {{- eos_token }}{% continue %}{% endif %}
{{ m | tojson(indent=2) if not m.content else told(m) }}{{ dict(a=ns.n) }}{{ ['ü', '<'] | tojson }}
{% endfor %}{% if add_generation_prompt and tools is none %}{{ ns.n }}{% endif %}"""


def test_a_template_is_rendered_as_transformers_does() -> None:
    tokenizer = byte_tokenizer()
    assert isinstance(tokenizer.chat_template, str)
    messages = [{"role": role, "content": f" {role} <b> "} for role in ("system", "user", "assistant", "user")]
    for template in (tokenizer.chat_template, MOVED, DROPPED, TRANSFORMERS_WAYS):
        tokenizer.chat_template = template
        expected = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert template_process.render(template, [messages], tokenizer.special_tokens_map) == [{"text": expected}]


def test_a_tokenizer_whose_normalizer_multiplies_a_text_is_refused(tmp_path: Path) -> None:
    """Load one that makes "▁" of blanks, as SentencePiece does, and one that makes 10^8 letters of each "a"."""
    tokenizer = byte_tokenizer()
    step, word = normalizers.Replace("a", "a" * 10), normalizers.Replace(" ", "▁")
    for steps in ([normalizers.Prepend("▁"), word], [word, *[step] * 8]):
        tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(steps)
        tokenizer.save_pretrained(tmp_path)
        if step not in steps:
            load_chat(tmp_path, tiny_config())
    with pytest.raises(UnsupportedModel, match="makes 100,000,000 letters of one"):
        load_chat(tmp_path, tiny_config())


def test_a_folder_with_more_layers_than_any_network_is_refused_at_once(tmp_path: Path) -> None:
    tiny_config().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text().replace('"num_hidden_layers": 3', '"num_hidden_layers": 10000000'))
    with pytest.raises(UnsupportedModel, match="says that it has 10,000,000 layers"):
        read_config(tmp_path)


def test_a_tokenizer_without_a_chat_template_is_refused() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(UnsupportedModel, match="chat template"):
        Chat(tokenizer)
