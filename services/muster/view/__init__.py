"""What services that decide share: STATE in memory, the snapshot kept up to date with it, the debounced wake-up."""
