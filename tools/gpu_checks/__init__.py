"""Modules of tools/gpu_check."""
