"""Measurements that are printed as ratios of what this machine can do at all."""
