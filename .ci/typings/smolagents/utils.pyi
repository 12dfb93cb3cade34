class AgentError(Exception):
    message: str
