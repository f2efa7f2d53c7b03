"""The operations in plain torch, for any device."""
