// CUDA's pipeline primitives (__pipeline_memcpy_async ...) for the emulator, under the name that CUDA sources include.
#pragma once
#include "emulator_abi.h"

EMULATOR_FUNCTION void __pipeline_memcpy_async(void* shared, const void* global, unsigned long size, unsigned long zfill = 0) {
  if ((size != 4 && size != 8 && size != 16) || zfill > size) emulator_trap("__pipeline_memcpy_async copies 4, 8 or 16 bytes, of which zfill are zero");
  emulator_async_copy(shared, global, (unsigned)size, (unsigned)(size - zfill), EMULATOR_HERE);
}
EMULATOR_FUNCTION void __pipeline_commit() { emulator_async_commit(); }
EMULATOR_FUNCTION void __pipeline_wait_prior(unsigned long groups) { emulator_async_wait((unsigned)groups); }
