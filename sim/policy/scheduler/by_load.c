#include "sim/policy/scheduler/by_load.h"

#include <string.h>

extern const struct scheduler scheduler_continuous;

bool by_load_list(struct by_load *load, const struct schedule_view *view, struct batch *batch) {
    const uint32_t there = view->n_running + view->n_waiting;
    const uint32_t is_loaded = there > (load->is_loaded ? load->to : load->from - 1);
    scheduler_continuous.schedule(NULL, view, batch);
    batch->hold = HOLD_CHANGE; /* an arrival may change the load */
    if (is_loaded != load->is_loaded) {
        memmove(batch->selected + view->n_running, batch->selected,
                batch->n * sizeof *batch->selected);
        memcpy(batch->selected, view->running, view->n_running * sizeof *view->running);
        batch->n += view->n_running;
        batch->all_running = 0;
    }
    load->is_loaded = is_loaded;
    batch->says = is_loaded;
    return is_loaded;
}
