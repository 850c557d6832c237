"""The panels: one question a file, each with a module of the same name in `js/panels/`."""
