/* <device_launch_parameters.h> of the emulator: the header that every source is compiled with anyway. */
#pragma once
#include "cuda_emulator.h"
