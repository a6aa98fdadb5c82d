"""MADES 1.1 on the wire: the services of a node and of an endpoint in XML (cl. 5)."""
