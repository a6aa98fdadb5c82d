"""The broker of 503 cl. 5.4 and 6: queues between endpoints, with every rule of Table 4."""
