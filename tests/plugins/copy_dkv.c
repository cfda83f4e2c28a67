/* The built-in dkv-decode as a plug-in. */
#define cache_dkv_decode unmask_policy

#include "sim/cache/cache_dkv.c"
