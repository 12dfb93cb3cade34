"""Tools of MCP servers. The supervisor's part is here; `inside` talks to the server, in a cell."""
