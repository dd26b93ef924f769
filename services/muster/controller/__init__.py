"""The controller: submissions become jobs, jobs become gangs and pods, and everyone is told how it goes."""
