/* The built-in focus as a plug-in: the same code, which stands beside nothing of the program's. */
#define cache_focus unmask_policy

#include "sim/cache/cache_focus.c"
#include "sim/cache/exact.c"
#include "sim/decode/focus.c"
