"""The operator's console of a component: pages over its services, served by the component itself.

A thin layer: it decides who may do what, what a page shows and what is written down of an action;
everything else is decided by the services it calls.
"""
