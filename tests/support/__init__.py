"""What tests of every layer share: plugins, registers of requirements, generators of values."""
