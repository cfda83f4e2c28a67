/* What the two paths of dense attention share. */
#ifndef UNMASK_KERNELS_DENSE_ATTENTION_CUH
#define UNMASK_KERNELS_DENSE_ATTENTION_CUH

#include "kernels/kernels.h"

/* Whether the call's shapes are ones both paths take. */
extern "C" bool dense_attention_valid(const struct call_dense_attention *call);

#endif
