"""What the cluster is: frozen data with units in the types. Nothing here decides or talks."""
