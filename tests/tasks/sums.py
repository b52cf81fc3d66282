"""A user's own suite: what ``agentenv collect path/to/sums.py`` needs, in 20 lines."""

from agentenv.toolkit.suite import Task, Variant, call, exact_answer, messages, scripted, seeded_suite

from agentenv_tools.calculator import calculator


@seeded_suite("sums", size=200, worked_examples=5)
def suite(draw: Variant) -> Task:
    """Make one sum."""
    rng = draw.rng()
    a, b = rng.randint(1_000, 99_999), rng.randint(1_000, 99_999)
    sum_of = call("calculator", expression=f"{a} + {b}")
    return Task(
        id=draw.id,
        messages=messages(f"What is {a} + {b}?"),
        tools=(calculator,),
        grader=exact_answer(a + b),
        scripts={"reference": scripted(sum_of, f"The answer is {a + b}.")},
    )
