/* <cooperative_groups/reduce.h>: the emulator has it in <cooperative_groups.h>. */
#pragma once
#include "../cooperative_groups.h"
