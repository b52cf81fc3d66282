"""The form of a template: what it can carry, how it writes calls, how turns begin and end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agentenv.errors import ConfigError, UnknownNameError
from agentenv.rendering.calls.hermes import Hermes
from agentenv.rendering.calls.llama3 import Llama3
from agentenv.rendering.calls.mistral import Mistral
from agentenv.rendering.calls.pythonic import Pythonic
from agentenv.rendering.calls.reasoning import OPEN
from agentenv.rendering.calls.style import CallStyle
from agentenv.rendering.carriers import Traits
from agentenv.rendering.chat_template import ChatTemplate
from agentenv.rendering.probing import Prober, detect_style, reads


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateForm:
    """What was found out about one template."""

    traits: Traits
    style: CallStyle
    turn_end: str | None
    """The control token that follows an assistant's text; None if none does."""
    openings: tuple[str, ...]
    """What stands right before a sampled turn, from a control token on: after a user message, after a result."""
    opens_reasoning: bool
    """Whether the generation prompt ends inside reasoning."""


def find_form(
    template: ChatTemplate, *, control_ids: Mapping[str, int], control: re.Pattern[str], call_style: str | None
) -> TemplateForm:
    """Probe a template.

    Args:
        template: The template.
        control_ids: Control tokens of the vocabulary.
        control: A pattern that finds them.
        call_style: A style to use whatever the template writes; None takes the template's own.

    Raises:
        ConfigError: It is no template for chats, or writes calls in a style that none of ours reads.
        UnknownNameError: There is no such call style.
    """
    prober = Prober(template)
    traits = prober.traits()
    styles = _styles(template, control_ids)
    if call_style is not None and call_style not in styles:
        raise UnknownNameError.of("call style", call_style, styles)
    written = prober.written_call(traits)
    style = styles[call_style] if call_style is not None else _own_style(template, written, styles, control)
    if not (written and reads(style, written, control=control)):
        traits = replace(traits, calls=False, parallel_calls=False, text_beside_calls=False)
        traits = replace(traits, tools=traits.tools and not written)
    prompts = prober.openings(traits)
    return TemplateForm(
        traits=traits,
        style=style,
        turn_end=prober.turn_end(control),
        openings=tuple(dict.fromkeys(_from_control(text, control) for text in prompts if control.search(text))),
        opens_reasoning=all(text.rstrip().endswith(OPEN) for text in prompts),
    )


def _styles(template: ChatTemplate, control_ids: Mapping[str, int]) -> dict[str, CallStyle]:
    named = "[ARGS]" in template.text or "[ARGS]" in control_ids
    styles: Sequence[CallStyle] = (Hermes(), Mistral(named=named), Llama3(), Pythonic())
    return {style.name: style for style in styles}


def _own_style(
    template: ChatTemplate, written: str, styles: Mapping[str, CallStyle], control: re.Pattern[str]
) -> CallStyle:
    """Take the style that reads what the template writes; where it writes no calls, the one whose markers it spells."""
    candidates = list(styles.values())
    if not written:
        spelled = (style for style in candidates if any(marker in template.text for marker in style.markers))
        return next(spelled, candidates[0])
    style = detect_style(written, candidates, control=control)
    if style is None:
        raise ConfigError(
            f"the chat template writes tool calls in a form that no call style reads: {written[:200]!r}. "
            f"Give call_style, one of {', '.join(styles)}: tools are then described in the system message, that way."
        )
    return style


def _from_control(text: str, control: re.Pattern[str]) -> str:
    match = control.search(text)
    return text if match is None else text[match.start() :]
