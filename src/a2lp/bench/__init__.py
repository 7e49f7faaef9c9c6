"""The bench: methods on the same tasks, with intervals, records that resume, tables and a report."""
