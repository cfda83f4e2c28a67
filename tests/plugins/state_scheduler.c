/* The policy of static_scheduler.c, with its count where it belongs. */
#define KEEPS_STATE
#include "tests/plugins/static_scheduler.c"
