"""From a function that went through the pipeline to a callable module: generating C, compiling, loading, checking arguments, timing.

Read in this order: generated (what a generator hands over), writer, c_types, c_math_table, c_math, c_helpers, c_expressions, c_storage, c (the
generator); cache, toolchain, openmp, loader (source to library); dlpack, sizes, arrays (the arguments of a call); timer, header, module;
doctor. CUDA: cuda_functions, cuda_lanes, cuda_halves, cuda_vectors, cuda_helpers, cuda_constants, cuda_launch, cuda (the generator as overrides of the C
one); cuda_toolchain, cuda_driver, cuda_devices, cuda_files, cuda_module; libraries (modules from files). emulator/ has a reading order of its own.
"""
