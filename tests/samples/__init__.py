"""The samples in `make demo` and in tests: more traffic, and the rows and events that must follow from it."""
