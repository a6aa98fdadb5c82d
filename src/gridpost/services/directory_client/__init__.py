"""How endpoints and brokers live with component-directories: enrolling, synchronising, pushing."""
