"""Stores that live as long as their process: the twins of the durable ones."""
