"""The part of the MCP client that runs inside the cell of a server. It needs only the standard library."""
