"""An MCP server for the tools of a supervisor. Importing this package loads nothing."""
