/* The policy of static_scheduler.c, with its count in thread-local variables. */
#define KEEPS_THREADS
#include "tests/plugins/static_scheduler.c"
