"""The component-directory: address book, registry office and certification authority of a subsystem."""
