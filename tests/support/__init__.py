"""What tests of several folders use: plans, hosts, steps, stubs, limits of time."""
