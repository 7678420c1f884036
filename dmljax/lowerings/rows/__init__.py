"""Reductions, scans, selection and recurrence along axes."""
