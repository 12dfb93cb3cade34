"""The channels that ship: console, callback, webhook, in memory, and the default, which writes to the log."""
