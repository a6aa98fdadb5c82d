"""The node of MADES 1.1: messages for its registered endpoints, and the directory of the network."""
