/* Built-in policies as plug-ins of the same code, copy_dkv.so, copy_focus.so, copy_sliding.so. */
#ifdef PLUGIN_copy_dkv
#define cache_dkv_decode unmask_policy
#include "sim/policy/cache/cache_dkv.c"
#endif

#ifdef PLUGIN_copy_focus
#define cache_focus unmask_policy
#include "sim/decode/focus.c"
#include "sim/policy/cache/cache_focus.c"
#include "sim/policy/cache/exact.c"
#endif

#ifdef PLUGIN_copy_sliding
#define cache_sliding unmask_policy
#include "sim/policy/cache/cache_sliding.c"
#endif
