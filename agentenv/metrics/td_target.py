"""The one-step target of a critic at the end of an episode: the task's end and the collector's are not the same."""

from __future__ import annotations

from agentenv.errors import UsageError


def one_step_target(reward: float, next_value: float, gamma: float, *, terminated: bool, truncated: bool) -> float:
    """Give ``reward`` if the task ended, else ``reward + gamma * next_value``.

    Args:
        reward: Of the step.
        next_value: The critic's value of the state after it. For a truncated episode that is its last observation
            (``final_prompt_ids``), never the first one after a reset.
        gamma: Discount, 0 to 1.
        terminated: The task itself ended; wins if both are set.
        truncated: Something outside the task stopped it. Makes no difference to the target of this step: what comes
            after it is unseen, not worthless. (It does cut an advantage recursion: that is another mask.)

    Raises:
        UsageError: ``gamma`` is outside 0 to 1.

    >>> one_step_target(1.0, 0.5, 1.0, terminated=True, truncated=False)
    1.0
    >>> one_step_target(1.0, 0.5, 1.0, terminated=False, truncated=True)
    1.5
    """
    del truncated  # part of the question, so that nobody can forget to say
    if not 0.0 <= gamma <= 1.0:
        raise UsageError(f"A discount lies between 0 and 1, got {gamma!r}.")
    return reward if terminated else reward + gamma * next_value
