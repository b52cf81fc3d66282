"""What the package promises to whoever imports it: its names, its errors, its entry points."""

from __future__ import annotations

import inspect
import pickle
import re
from importlib.metadata import entry_points
from pathlib import Path

import agentenv
import agentenv.errors
import pytest
from agentenv.core.deadline import DeadlineReached
from agentenv.errors import AgentEnvError, Fault, PolicyServerFault, PromptTooLong, UnknownNameError, UsageError
from agentenv.records.axes import FaultDomain
from agentenv.registry import load_suite, load_tools, suite_names, tool_names


class TestPublicNames:
    def test_every_name_is_there_and_sorted(self) -> None:
        assert agentenv.__all__ == sorted(agentenv.__all__)
        assert dir(agentenv) == agentenv.__all__
        for name in agentenv.__all__:
            assert getattr(agentenv, name) is not None

    def test_what_is_not_there_is_said_as_python_does(self) -> None:
        with pytest.raises(AttributeError, match="module 'agentenv' has no attribute 'nonsense'"):
            _ = agentenv.nonsense  # type: ignore[attr-defined]

    def test_the_types_checkers_see_are_what_programs_get(self) -> None:
        """The names are written twice, for type checkers and for programs; both lists are one."""
        source = Path(agentenv.__file__).read_text()
        block = source.split("if TYPE_CHECKING:")[1].split("__version__")[0]
        seen = {name.strip() for line in block.splitlines() if " import " in line for name in _imported(line)}
        assert seen == set(agentenv.__all__) - {"__version__"}

    def test_the_version_is_the_distributions(self) -> None:
        assert _metadata_version() == agentenv.__version__


def _imported(line: str) -> list[str]:
    return line.split(" import ")[1].split(",")


def _metadata_version() -> str:
    from importlib.metadata import version

    return version("agentenv")


def tree(root: type[BaseException] = AgentEnvError) -> list[type[BaseException]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in tree(child))]


OURS = [kind for kind in tree() if kind.__module__.startswith("agentenv.") and "testing" not in kind.__module__]


class TestErrors:
    @pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
    def test_every_class_pickles_with_its_message_and_facts(self, kind: type[AgentEnvError]) -> None:
        """A worker's error reaches its parent whole."""
        error = kind("what happened")
        if isinstance(error, Fault):
            error.retryable = False
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is kind
        assert str(again) == "what happened"
        assert vars(again) == vars(error)

    def test_the_tree_is_drawn_in_full(self) -> None:
        """The docstring of the module draws every class in it."""
        drawn = agentenv.errors.__doc__ or ""
        for kind in OURS:
            if kind.__module__ == "agentenv.errors":
                assert re.search(rf"^[ │├└─]*{kind.__name__}\b", drawn, re.MULTILINE), f"{kind.__name__} is not drawn"

    def test_every_fault_names_a_domain_and_every_domain_has_a_fault(self) -> None:
        faults = [kind for kind in OURS if issubclass(kind, Fault)]
        assert {FaultDomain(kind.domain) for kind in faults} == set(FaultDomain) - {FaultDomain.NONE}

    def test_every_class_has_a_docstring(self) -> None:
        for kind in OURS:
            assert inspect.getdoc(kind)

    def test_usage_errors_are_value_errors_and_faults_are_not(self) -> None:
        assert issubclass(UsageError, ValueError)
        assert not issubclass(Fault, ValueError)
        assert not issubclass(DeadlineReached, TimeoutError), "a foreign TimeoutError must not be taken for ours"

    def test_a_permanent_fault_keeps_its_class(self) -> None:
        fault = PromptTooLong.permanent("too long")
        assert (type(fault), fault.retryable) == (PromptTooLong, False)
        assert PolicyServerFault("passing").retryable

    def test_an_unknown_name_says_what_is_near(self) -> None:
        assert str(UnknownNameError.of("tool", "grp", ["grep", "cat"])) == (
            "There is no tool 'grp'. Did you mean 'grep'? Known: cat, grep."
        )
        assert "Known: none." in str(UnknownNameError.of("tool", "x", []))


class TestEntryPoints:
    def test_every_suite_loads_under_its_name(self) -> None:
        assert set(suite_names()) >= {"arithmetic", "keep-original", "lookup", "repair"}
        for name in suite_names():
            suite = load_suite(name)
            assert suite.name == name
            assert suite.size >= 200

    def test_every_tool_loads_under_its_name(self) -> None:
        assert set(tool_names()) >= {"calculator", "code", "files", "http", "notes", "python", "shell", "sql", "submit"}
        for name in tool_names():
            tools = load_tools(name)
            assert tools
            assert all(name in tool.spec.name.split("_") for tool in tools)  # `search` is `files_search` alone

    def test_the_command_is_installed(self) -> None:
        (script,) = [point for point in entry_points(group="console_scripts") if point.name == "agentenv"]
        assert callable(script.load())
