"""The components of the network, one folder each; they reach the outside through core.ports alone."""
