"""GPU memory through NVML, which runs in a helper process because its calls may hang.

Start reading in `gpu_reader`; `nvml_helper` is the other process.
"""
