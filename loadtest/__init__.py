"""Load tests and measurements of Muster; each module runs with `python -m loadtest.NAME`."""
