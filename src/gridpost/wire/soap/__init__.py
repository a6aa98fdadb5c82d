"""SOAP 1.1 and 1.2 over HTTP, for every interface that speaks it; no sockets, no meaning of its own."""
