"""Silver: facts by kind, placed by the day of their message, and one row for each message."""
