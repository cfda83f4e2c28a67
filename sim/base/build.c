#include "sim/base/build.h"

/* The Makefile includes build/build_id.h before this file; a tool that reads it alone has none. */
#ifndef BUILD_COMMIT
#define BUILD_COMMIT  "unknown"
#define BUILD_DIRTY   false
#define BUILD_SOURCES ""
#endif

struct build build_this(void) {
    return (struct build){UNMASK_VERSION, BUILD_COMMIT, BUILD_SOURCES, BUILD_DIRTY};
}
