"""Pallas kernels for GPUs and TPUs, and the primitives that become them."""
