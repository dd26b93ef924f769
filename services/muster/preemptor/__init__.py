"""Makes room for gangs that are entitled to it: proposes plans, and carries out those that the scheduler committed."""
