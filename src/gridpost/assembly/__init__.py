"""Joins concrete classes to running components; the only place that knows them all."""
