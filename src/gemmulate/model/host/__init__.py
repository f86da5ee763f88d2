"""The machine at hand: kernels run for real, phases calibrated, predictions held against measurements."""
