"""PostgreSQL behind the ports of core: for components whose data several processes share, or that an
operator keeps in a database he has already.
"""
