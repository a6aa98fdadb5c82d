"""`gridpost demo`: a whole network on this machine, every component a process of its own."""

from gridpost.demo.result import DemoResult
from gridpost.demo.run import DemoPlan, run_demo

__all__ = ["DemoPlan", "DemoResult", "run_demo"]
