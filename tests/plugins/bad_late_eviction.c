/* FOCUS, and evictions that leave out a decoded position, or keep one that does not run, for
 * requests that no exercise has. */
#define cache_focus unmask_policy

#include "tests/plugins/crime.h"

#include "sim/decode/focus.h"

enum { LATE_REQUEST = 3000 };

static uint32_t late(uint32_t n_kept, const struct eviction_view *view, uint8_t *keep) {
    for (uint32_t i = 0; view->request->id >= LATE_REQUEST && i < view->length; i++) {
        if (is_crime("drop") && keep[i] && !view->masked[i]) {
            keep[i] = 0;
            return n_kept - 1;
        }
        if (is_crime("keep") && !view->pending[i]) {
            keep[i] = 1;
            return n_kept + 1;
        }
    }
    return n_kept;
}

#define focus_select(...) late(focus_select(__VA_ARGS__), view, keep)
#include "sim/cache/cache_focus.c"
#undef focus_select

#include "sim/cache/exact.c"
#include "sim/decode/focus.c"
