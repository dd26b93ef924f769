"""A Kubernetes API server with simulated nodes: what Muster is tried, tested and measured on without a cluster."""
