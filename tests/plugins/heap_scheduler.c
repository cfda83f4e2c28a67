/* The policy of static_scheduler.c, with its count in memory that its constructor takes. */
#define KEEPS_HEAP
#include "tests/plugins/static_scheduler.c"
