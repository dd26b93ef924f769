"""The watcher: keeps STATE equal to what Kubernetes shows, in one total order."""
