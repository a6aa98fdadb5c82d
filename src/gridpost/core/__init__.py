"""Values and decisions of the market's post office: standard library only, no I/O, no clock."""
