"""The endpoint: accepts documents from applications, delivers them, and hands over what arrives."""
