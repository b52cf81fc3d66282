"""The compressors by name, and how a specification such as ``window:2048,target=0.7`` is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NoReturn

from agentenv.compressors.clear_tool_results import DEFAULT_KEEP, ClearToolResults
from agentenv.compressors.none import NoCompression
from agentenv.compressors.window import DEFAULT_TARGET, SlidingWindow
from agentenv.core.compressor import Compressor
from agentenv.errors import ConfigError, UnknownNameError


@dataclass(slots=True, kw_only=True)
class Settings:
    """What stands behind the name, taken apart; each reading removes what it read."""

    spec: str
    form: str
    size: str | None
    options: dict[str, str] = field(default_factory=dict[str, str])

    def tokens(self) -> int:
        """Read the size: a whole number of tokens, at least 1.

        Raises:
            ConfigError: It is missing or no such number.
        """
        text, self.size = self.size, None
        if text is None or not _is_whole(text) or int(text) < 1:
            self.refuse(f"{text or 'nothing'!r} is no whole number of tokens above 0")
        return int(text)

    def whole(self, key: str, default: int) -> int:
        """Read an option that is a whole number, 0 included.

        Raises:
            ConfigError: It is no such number.
        """
        text = self.options.pop(key, str(default))
        if not _is_whole(text):
            self.refuse(f"{key}={text!r} is no whole number")
        return int(text)

    def share(self, key: str, default: float) -> float:
        """Read an option above 0 and at most 1.

        Raises:
            ConfigError: It is no such number.
        """
        text = self.options.pop(key, repr(default))
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value <= 1:
            self.refuse(f"{key}={text!r} is no number above 0 and at most 1")
        return value

    def end(self) -> None:
        """Refuse whatever was not read.

        Raises:
            ConfigError: Something is left over.
        """
        left = [*([self.size] if self.size is not None else []), *(f"{k}={v}" for k, v in self.options.items())]
        if left:
            self.refuse(f"nothing is known of {', '.join(map(repr, left))}")

    def refuse(self, problem: str) -> NoReturn:
        """Say what is wrong and what is expected.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(f"compressor {self.spec!r}: {problem}; expected {self.form}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressorKind:
    """One registered compressor."""

    form: str
    """How its specification is written, with an example."""
    purpose: str
    """One line for ``agentenv list compressors``."""
    build: Callable[[Settings], Compressor]


COMPRESSORS: Mapping[str, CompressorKind] = MappingProxyType(
    {
        "none": CompressorKind(
            form="none",
            purpose="never compacts; a prompt that no longer fits ends the episode",
            build=lambda settings: NoCompression(),
        ),
        "window": CompressorKind(
            form="window:TOKENS[,target=SHARE], such as window:2048 or window:2048,target=0.7",
            purpose="above TOKENS, drops the oldest whole turns until SHARE of TOKENS is filled (half by default)",
            build=lambda settings: SlidingWindow(
                limit=settings.tokens(), target=settings.share("target", DEFAULT_TARGET)
            ),
        ),
        "clear-tool-results": CompressorKind(
            form="clear-tool-results:TOKENS[,keep=COUNT], such as clear-tool-results:2048 or "
            "clear-tool-results:2048,keep=5",
            purpose="above TOKENS, replaces all tool results but the newest COUNT (3 by default) by short stubs",
            build=lambda settings: ClearToolResults(limit=settings.tokens(), keep=settings.whole("keep", DEFAULT_KEEP)),
        ),
    }
)


def parse_compressor(spec: str) -> Compressor:
    """Make a compressor from its specification, ``NAME`` or ``NAME:TOKENS[,OPTION=VALUE]…``.

    Raises:
        UnknownNameError: There is no compressor of that name.
        ConfigError: The settings are not what it takes; says the form expected.

    >>> parse_compressor("window:2048").trigger_tokens
    2048
    """
    name, colon, rest = spec.strip().partition(":")
    kind = COMPRESSORS.get(name)
    if kind is None:
        raise UnknownNameError.of("compressor", name, COMPRESSORS)
    settings = _settings(spec, kind.form, rest if colon else None)
    compressor = kind.build(settings)
    settings.end()
    return compressor


def _settings(spec: str, form: str, rest: str | None) -> Settings:
    settings = Settings(spec=spec, form=form, size=None)
    for index, part in enumerate(rest.split(",") if rest is not None else ()):
        key, equals, value = part.partition("=")
        if index == 0 and not equals:
            settings.size = part
        elif not equals or not key or key in settings.options:
            settings.refuse(f"{part!r} is no option, or comes twice")
        else:
            settings.options[key] = value
    return settings


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12
