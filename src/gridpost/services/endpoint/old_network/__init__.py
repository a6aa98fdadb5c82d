"""The endpoint in a MADES 1.1 network: a second network beside that of 503, behind its own port."""
