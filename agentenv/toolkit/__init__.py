"""Floor 2: functions made tools, toolboxes, suites."""

from agentenv.toolkit.context import sandbox_of
from agentenv.toolkit.function_tool import FunctionTool, tool
from agentenv.toolkit.toolbox import Toolbox

__all__ = ["FunctionTool", "Toolbox", "sandbox_of", "tool"]
