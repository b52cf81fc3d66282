"""Any MCP server as a toolbox, and our own toolboxes as an MCP server.

A server is described once (`agentenv describe-mcp`), and the description is what a task is made of: the names, texts
and schemas a policy is trained on do not change when somebody updates a server. Every episode has a connection of its
own, made before the policy acts; a server that is no longer as described ends the episode as a fault of the tool.

Source: Model Context Protocol, revisions 2024-11-05 to 2026-07-28, through the official SDK (the extra ``mcp``), which
is imported only where a connection is made or served.
"""

from agentenv.toolkit.mcp.description import Description
from agentenv.toolkit.mcp.server_tools import McpTool, mcp_tools
from agentenv.toolkit.mcp.servers import McpServer, mcp_http, mcp_stdio

__all__ = ["Description", "McpServer", "McpTool", "mcp_http", "mcp_stdio", "mcp_tools"]
