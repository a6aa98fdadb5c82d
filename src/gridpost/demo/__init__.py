"""The exchange that `gridpost demo` shows, with the real parts and none that only look like them."""

from gridpost.demo.result import DemoResult

__all__ = ["DemoResult"]
