"""The bus: requests, replies and events of IEC 61968-100 between systems of one company."""
