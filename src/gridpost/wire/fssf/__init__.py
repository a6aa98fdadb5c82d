"""File System Shared Folders (503 cl. 11.2): what file names and log lines say."""
