"""The operations by the C++ kernel; `kernel.py` loads it, `abi.py` mirrors its structures."""
