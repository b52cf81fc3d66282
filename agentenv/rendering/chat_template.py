"""A model's chat template: Jinja in a sandbox, with the functions and settings that such templates are written for.

Source of the environment (trimmed blocks, loop controls, ``tojson`` that leaves HTML alone, ``raise_exception``,
``strftime_now``, the ``generation`` tag): the documentation of chat templates in the ``transformers`` library, whose
rendering is the reference in the tests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from agentenv.errors import ConfigError

ChatMessage = dict[str, Any]
"""A message as templates know it: ``role``, ``content``, sometimes ``tool_calls``, ``tool_call_id``, ``name``."""

_FAILURES = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
)
"""What an expression of a template may raise on a history that it was not written for."""


class TemplateRefusal(ConfigError):
    """The template raised on this history."""


class ChatTemplate:
    """One compiled template. Rendering is a pure function of its arguments; safe in several threads."""

    def __init__(
        self,
        source: str,
        *,
        tool_source: str | None = None,
        variables: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> None:
        """Compile.

        Args:
            source: The template.
            tool_source: A template to use instead when there are tools (some models ship one named ``tool_use``).
            variables: What it may read besides the messages: ``bos_token``, ``enable_thinking`` and the like.
            now: What ``strftime_now`` shows. None takes the present moment once, so that a renderer never changes.

        Raises:
            ConfigError: It is no valid template.
        """
        self.source = source
        self._tool_source = tool_source
        self._variables = dict(variables or {})
        self._now = now or datetime.now().astimezone()
        environment = _environment(self._now)
        self._plain = _compile(environment, source)
        self._with_tools = self._plain if tool_source is None else _compile(environment, tool_source)

    @property
    def text(self) -> str:
        """All the source there is, for looking up what it spells."""
        return self.source + (self._tool_source or "")

    @property
    def sha256(self) -> str:
        """Hash of source, variables and, if the template shows it, the moment."""
        parts: list[Any] = [self.source, self._tool_source, sorted(self._variables.items())]
        if "strftime_now" in self.text:
            parts.append(self._now.isoformat())
        return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[ChatMessage], *, generation_prompt: bool) -> str:
        """Render a history.

        Raises:
            TemplateRefusal: The template raised; the message quotes it.
        """
        template = self._with_tools if tools else self._plain
        try:
            return template.render(
                {
                    **self._variables,
                    "messages": list(messages),
                    "tools": list(tools) or None,
                    "documents": None,
                    "add_generation_prompt": generation_prompt,
                }
            )
        except _FAILURES as error:
            roles = [message.get("role") for message in messages]
            raise TemplateRefusal(
                f"the chat template refuses this history: {type(error).__name__}: {str(error)[:200]} "
                f"(roles: {', '.join(map(str, roles[:20]))}{', …' if len(roles) > 20 else ''}). "
                "Give the messages in an order that the template takes, or another template."
            ) from error


def _compile(environment: jinja2.Environment, source: str) -> jinja2.Template:
    try:
        return environment.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError(f"the chat template is not valid Jinja: line {error.lineno}: {error.message}") from error


def _environment(now: datetime) -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _tojson
    functions: dict[str, Any] = {
        "raise_exception": _raise_exception,
        "strftime_now": now.strftime,
        "namespace": _TemplateNamespace,
    }
    environment.globals.update(functions)
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as templates expect it: not escaped for HTML, keys in order, non-ASCII as it is."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


class _TemplateNamespace(Namespace):
    """A namespace that stores no underscored names, so that a template cannot reach the interpreter through one."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a chat template may not store {name!r} in a namespace")
        super().__setitem__(name, value)


class _Generation(Extension):
    """The block tag ``generation``: it marks what an assistant wrote, and renders its body."""

    tags = {"generation"}  # noqa: RUF012  # as the base class declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
