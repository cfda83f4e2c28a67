#include "engine/step/captures.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/err.h"
#include "sim/base/mem.h"

void captures_open(struct captures *captures, const struct device_table *table,
                   struct device *device) {
    *captures = (struct captures){.table = table, .device = device};
    if (table->capture_begin != NULL) {
        captures->steps = mem_zeroed(MAX_KNOWN_STEPS, sizeof *captures->steps);
    }
}

static void forget(struct captures *captures, struct known_step *step) {
    if (step->graph != NULL) {
        captures->table->graph_close(captures->device, step->graph);
        step->graph = NULL;
        captures->n_captured--;
    }
}

void captures_close(struct captures *captures) {
    for (int i = 0; captures->steps != NULL && i < MAX_KNOWN_STEPS; i++) {
        forget(captures, &captures->steps[i]);
    }
    free(captures->steps);
    *captures = (struct captures){0};
}

/* The entry used longest ago, of those that are captured or of those that are not. At most half of
 * them are captured, so that there always is one that is not. */
static struct known_step *oldest(struct captures *captures, bool captured) {
    struct known_step *found = NULL;
    for (int i = 0; i < MAX_KNOWN_STEPS; i++) {
        struct known_step *step = &captures->steps[i];
        if ((step->graph != NULL) == captured &&
            (found == NULL || step->last_used < found->last_used)) {
            found = step;
        }
    }
    ASSERT(found != NULL);
    return found;
}

struct known_step *captures_find(struct captures *captures, const struct step_key *key,
                                 bool *is_new) {
    struct known_step *found = NULL;
    for (int i = 0; found == NULL && i < MAX_KNOWN_STEPS; i++) {
        struct known_step *step = &captures->steps[i];
        found = step->last_used > 0 && memcmp(&step->key, key, sizeof *key) == 0 ? step : NULL;
    }
    *is_new = found == NULL;
    if (found == NULL) {
        found = oldest(captures, false);
        found->key = *key;
    }
    found->last_used = ++captures->n_uses;
    return found;
}

void captures_keep(struct captures *captures, struct known_step *step, struct device_graph *graph) {
    if (captures->n_captured == MAX_CAPTURES) {
        forget(captures, oldest(captures, true));
    }
    step->graph = graph;
    captures->n_captured++;
}
