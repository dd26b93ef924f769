"""What should happen: every decision of every service, pure. No clock, no socket, no environment, no log."""
