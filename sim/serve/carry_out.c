#include "sim/serve/carry_out.h"

#include <string.h>

#include "sim/policy/cache/blocks.h"

/* A request takes no part in the batch, which is listed there. */
static void drop_listed(struct batch *batch, uint32_t at) {
    size_t behind = --batch->n - at;
    memmove(batch->selected + at, batch->selected + at + 1, behind * sizeof *batch->selected);
    uint32_t *const lists[] = {batch->chunk_tokens, batch->width_tokens,
                               batch->threshold_millionths, batch->puts_off, batch->run_tokens};
    for (int i = 0; i < (batch->says ? 5 : 1); i++) {
        memmove(lists[i] + at, lists[i] + at + 1, behind * sizeof *lists[i]);
        lists[i][batch->n] = 0;
    }
}

/* Under prefix caching requests to be admitted hold the pages that they found before others are
 * handed out. Pages of preempted requests may then stay held, and fewer may be free than the
 * scheduler could know: the last ones to be admitted stay in the queue, and running ones sit out a
 * step. */
static int hold_listed(struct lifecycle *life, struct replica *replica, struct batch *batch,
                       struct err *err) {
    uint32_t pages = 0, first = batch->n - batch->n_admitted;
    for (uint32_t i = first; i < batch->n; i++) {
        sharing_hold(life, replica, batch->selected[i]);
    }
    if (batch->n_preempted == 0) {
        return 0;
    }
    for (uint32_t i = 0; batch->all_running && i < replica->n_running; i++) {
        (void)sharing_fits(life, replica, replica->running[i], &pages);
    }
    for (uint32_t i = 0; i < batch->n;) {
        uint32_t before = pages;
        if (sharing_fits(life, replica, batch->selected[i], &pages)) {
            i++;
            continue;
        }
        pages = before;
        uint32_t drops = batch->n_admitted > 0 ? batch->n - 1 : i;
        if (batch->n_admitted > 0) {
            batch->n_admitted--;
            int status = sharing_unhold(life, replica, batch->selected[drops], err);
            if (status != 0) {
                return status;
            }
        }
        drop_listed(batch, drops);
    }
    return 0;
}

/* What the scheduler takes of a prefill; what it computes can be found from now on. */
static void take_part(struct lifecycle *life, struct replica *replica, uint32_t slot,
                      uint32_t chunk_tokens) {
    const struct request *request = &life->requests[slot];
    bool prefills = request->span.phase == PHASE_PREFILL;
    if (prefills && chunk_tokens > 0 && chunk_tokens < request->span.queries) {
        lifecycle_chunk(life, replica, slot, chunk_tokens);
    }
    if (prefills) {
        sharing_written(life, replica, slot, request->cached_tokens + request->span.queries);
    }
}

static int take_words(struct lifecycle *life, struct replica *replica, const struct batch *batch,
                      uint32_t i, struct err *err) {
    const uint32_t slot = batch->selected[i];
    int status = lifecycle_say(life, replica, slot, batch->says ? batch->width_tokens[i] : 0,
                               batch->says ? batch->threshold_millionths[i] : 0, err);
    if (status != 0 || !batch->says) {
        return status;
    }
    const struct request *request = &life->requests[slot];
    struct tracked *tracked = &life->tracked[slot];
    const uint32_t most = batch->run_tokens[i];
    const bool leaves = most > 0 && most < window_masked(request) && blocks_decide(request) &&
                        request->span.phase == PHASE_REUSE;
    tracked->puts_off = batch->puts_off[i] != 0 && request->refresh_waits > 0;
    tracked->run_tokens = leaves ? most : 0;
    tracked->surest = batch->surest != 0;
    status = tracked->puts_off || leaves ? lifecycle_plan_anew(life, replica, slot, err) : 0;
    tracked->puts_off = false;
    tracked->run_tokens = 0;
    return status;
}

/* Those that are admitted find what those before them compute in this step. */
int carry_out(struct lifecycle *life, struct replica *replica, struct batch *batch,
              struct err *err) {
    int status = 0;
    for (uint32_t i = 0; status == 0 && i < batch->n_preempted; i++) {
        status = lifecycle_preempt(life, replica, batch->preempted[i], batch->swaps[i] != 0, err);
    }
    status = status != 0 ? status : hold_listed(life, replica, batch, err);
    uint32_t n_listed = batch->all_running ? replica->n_running : batch->n - batch->n_admitted;
    const uint32_t *listed = batch->all_running ? replica->running : batch->selected;
    for (uint32_t i = 0; status == 0 && replica->growth_bytes > 0 && i < n_listed; i++) {
        status = lifecycle_grow(life, replica, listed[i], err);
    }
    for (uint32_t i = 0; status == 0 && i < batch->n; i++) {
        uint32_t slot = batch->selected[i];
        if (i >= batch->n - batch->n_admitted) {
            status = sharing_admit(life, replica, slot, err);
            status = status != 0 ? status : lifecycle_admit(life, replica, slot, err);
        }
        if (status == 0 && life->has_words) {
            status = take_words(life, replica, batch, i, err);
        }
        if (status == 0) {
            take_part(life, replica, slot, batch->chunk_tokens[i]);
        }
    }
    return status;
}
