"""Folders that are shared with applications (503 cl. 11.2), on a file system."""

from gridpost.stores.folders.in_folder import DiskInFolder
from gridpost.stores.folders.log_folder import DiskLogFolder
from gridpost.stores.folders.out_folder import DiskOutFolder

__all__ = ["DiskInFolder", "DiskLogFolder", "DiskOutFolder"]
