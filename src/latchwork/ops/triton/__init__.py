"""The operations as Triton kernels, for GPUs. Nothing here imports Triton before it is needed."""
