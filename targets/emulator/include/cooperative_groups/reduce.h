// The emulator's cooperative_groups.h has cooperative_groups::reduce too.
#pragma once
#include "../cooperative_groups.h"
