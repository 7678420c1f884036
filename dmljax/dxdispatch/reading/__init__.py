"""Reads and validates DxDispatch models."""
