"""Where state and keys live: implementations of the ports of the core."""
