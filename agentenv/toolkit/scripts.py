"""Scripts: fixed players of a task, for its reference solution and its do-nothing check."""

from __future__ import annotations

from agentenv.core.task import Script, ScriptView, Turn


def scripted(*turns: Turn | str) -> Script:
    """Make a script that says the turns in order, and the last one again if it is asked for more.

    Plain text is a turn without calls.

    Raises:
        ValueError: No turn was given.

    >>> play = scripted(call("calculator", expression="6 * 7"), "The answer is 42.")
    >>> play(ScriptView(turn=1, prompt_text="", messages=(), seed=0)).text
    'The answer is 42.'
    """
    if not turns:
        raise ValueError("a script needs at least one turn")
    said = [Turn(text=turn) if isinstance(turn, str) else turn for turn in turns]

    def play(view: ScriptView) -> Turn:
        return said[min(view.turn, len(said) - 1)]

    return play


def call(tool: str, /, text: str = "", **arguments: object) -> Turn:
    """Make a turn with one call. ``text`` is what is said before it.

    >>> call("calculator", expression="6 * 7").calls
    (('calculator', {'expression': '6 * 7'}),)
    """
    return Turn(text=text, calls=((tool, arguments),))


def nothing(view: ScriptView) -> Turn:
    """Say something that is no answer to any task: the do-nothing check of tasks that end with a text."""
    del view
    return Turn(text="I have nothing to say about that.")
