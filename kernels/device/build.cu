/* Which kernels these are. The Makefile includes kernels_id.h before this file. */
#include "kernels/device.h"

extern "C" const char unmask_cuda_build[] = KERNELS_BUILD;
