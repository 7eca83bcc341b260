"""The fidelity study: how far predictions are from the measured influence, and which to trust."""
