/* The policy of static_scheduler.c, with its count in a variable of which the loader has one for
 * all objects. */
#define KEEPS_UNIQUE
#include "tests/plugins/static_scheduler.c"
