"""Templates run as they do in the reference library, in a sandbox, and their refusals are errors with a remedy."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from agentenv.errors import ConfigError
from agentenv.rendering.chat_template import ChatTemplate, TemplateRefusal

USER = [{"role": "user", "content": "<é>"}]


def render(source: str, messages: list[dict[str, Any]] | None = None, **variables: Any) -> str:
    return ChatTemplate(source, variables=variables).render(messages or USER, (), generation_prompt=True)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "<é>"}'),
        ("{{ {'b': 1, 'a': [1]} | tojson(indent=1) }}", '{\n "b": 1,\n "a": [\n  1\n ]\n}'),
        ("{{ {'b': 1, 'a': 2} | tojson(separators=(',', ':'), sort_keys=true) }}", '{"a":2,"b":1}'),
        ("{% for i in 'abc' %}{% if i == 'b' %}{% continue %}{% endif %}{{ i }}{% endfor %}", "ac"),
        ("{% for i in 'abc' %}{% if i == 'b' %}{% break %}{% endif %}{{ i }}{% endfor %}", "a"),
        ("  {% if true %}\n  x\n  {% endif %}\ny", "  x\ny"),
        ("{% generation %}a{{ 1 + 1 }}{% endgeneration %}b", "a2b"),
        ("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ missing }}", "TrueTrueTrue"),
        ("{% set ns = namespace(x=1) %}{% for m in messages %}{% set ns.x = ns.x + 1 %}{% endfor %}{{ ns.x }}", "2"),
        ("{{ 'a,b'.split(',')[-1] }}{{ ' x '.strip() }}{{ 'abc'[1:] }}", "bxbc"),
        ("{{ bos_token }}", "<s>"),
    ],
)  # fmt: skip
def test_what_templates_use_is_there(source: str, expected: str) -> None:
    """Trimmed blocks, loop controls, JSON without HTML escapes, the generation tag, namespaces, variables."""
    assert render(source, bos_token="<s>") == expected  # no secret


def test_the_reference_renders_the_same() -> None:
    """A template that uses all of it, against the reference library."""
    from transformers.utils.chat_template_utils import render_jinja_template

    source = (
        "{%- set ns = namespace(n=0) -%}\n{% for m in messages %}\n  {%- if loop.first %}{% continue %}{% endif %}\n"
        "{% generation %}{{ m | tojson(indent=2) }}{% endgeneration %}\n  {% set ns.n = ns.n + 1 %}\n{% endfor %}"
        "{{ ns.n }}{{ dict(a=1) | tojson }}{{ strftime_now('%Y') }}"
    )
    messages = [*USER, {"role": "assistant", "content": "a&b", "tool_calls": [{"function": {"arguments": {"x": "ü"}}}]}]
    expected, _ = render_jinja_template([messages], chat_template=source, add_generation_prompt=True)
    assert ChatTemplate(source).render(messages, (), generation_prompt=True) == expected[0]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ raise_exception('Roles must alternate') }}", "TemplateError: Roles must alternate"),
        ("{{ messages[0].content + none }}", "TypeError"),
        ("{{ messages[0].nothing.more }}", "UndefinedError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ 'abc'.index('z') }}", "ValueError"),
        ("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "RecursionError"),
    ],
)
def test_a_refusal_says_why_and_for_which_roles(source: str, said: str) -> None:
    with pytest.raises(TemplateRefusal, match=rf"refuses this history: {said}.*\(roles: user\)"):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__self__ }}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ namespace.__init__.__globals__ }}",
    ],
)
def test_a_template_cannot_reach_out_or_change_what_it_is_given(source: str) -> None:
    messages = [dict(USER[0])]
    with pytest.raises(TemplateRefusal, match=r"SecurityError|UndefinedError"):
        ChatTemplate(source + "{{ nothing.more }}").render(messages, (), generation_prompt=False)
    assert messages == USER


def test_an_unsafe_attribute_is_undefined() -> None:
    assert (
        render("{{ ''.__class__ }}{{ raise_exception.__globals__ }}{{ strftime_now.__self__ is defined }}") == "False"
    )


def test_a_syntax_error_names_the_line() -> None:
    with pytest.raises(ConfigError, match=r"not valid Jinja: line 2: "):
        ChatTemplate("a\n{% for %}")


def test_the_date_is_fixed_once() -> None:
    """A renderer never changes; the hash covers the date only of templates that show it."""
    noon, later = datetime(2024, 7, 26, 12, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)
    dated, plain = "{{ strftime_now('%d %b %Y') }}", "x"
    assert ChatTemplate(dated, now=noon).render(USER, (), generation_prompt=True) == "26 Jul 2024"
    assert ChatTemplate(dated, now=noon).sha256 != ChatTemplate(dated, now=later).sha256
    assert ChatTemplate(plain, now=noon).sha256 == ChatTemplate(plain, now=later).sha256


def test_a_template_for_tools_is_used_where_there_are_tools() -> None:
    template = ChatTemplate("plain", tool_source="{{ tools | length }} tools")
    assert template.render(USER, (), generation_prompt=True) == "plain"
    assert template.render(USER, ({"type": "function"},), generation_prompt=True) == "1 tools"
    assert template.sha256 != ChatTemplate("plain").sha256
