"""What a session may do: values that a program or `toolcell.toml` states, and checks of them. No code here acts."""
