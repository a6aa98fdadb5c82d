"""The exchange that `gridpost demo` shows, with the real parts and none that only look like them."""

from gridpost.demo.exchange import run_demo
from gridpost.demo.result import DemoResult

__all__ = ["DemoResult", "run_demo"]
