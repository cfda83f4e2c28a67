#include "engine/device/recordings.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/err.h"
#include "sim/base/mem.h"

void recordings_open(struct recordings *recordings, const struct device_table *table,
                     struct device *device) {
    *recordings = (struct recordings){.table = table, .device = device};
    if (table->capture_begin != NULL) {
        recordings->steps = mem_zeroed(MAX_KNOWN_STEPS, sizeof *recordings->steps);
    }
}

static void forget(struct recordings *recordings, struct known_step *step) {
    if (step->recording != NULL) {
        recordings->table->graph_close(recordings->device, step->recording);
        step->recording = NULL;
        recordings->n_recorded--;
    }
}

void recordings_close(struct recordings *recordings) {
    for (int i = 0; recordings->steps != NULL && i < MAX_KNOWN_STEPS; i++) {
        forget(recordings, &recordings->steps[i]);
    }
    free(recordings->steps);
    *recordings = (struct recordings){0};
}

/* The entry used longest ago, of those that are recorded or of those that are not. At most half of
 * them are recorded, so that there always is one that is not. */
static struct known_step *oldest(struct recordings *recordings, bool recorded) {
    struct known_step *found = NULL;
    for (int i = 0; i < MAX_KNOWN_STEPS; i++) {
        struct known_step *step = &recordings->steps[i];
        if ((step->recording != NULL) == recorded &&
            (found == NULL || step->last_used < found->last_used)) {
            found = step;
        }
    }
    ASSERT(found != NULL);
    return found;
}

struct known_step *recordings_find(struct recordings *recordings, const struct step_key *key,
                                   bool *is_new) {
    struct known_step *found = NULL;
    for (int i = 0; found == NULL && i < MAX_KNOWN_STEPS; i++) {
        struct known_step *step = &recordings->steps[i];
        found = step->last_used > 0 && memcmp(&step->key, key, sizeof *key) == 0 ? step : NULL;
    }
    *is_new = found == NULL;
    if (found == NULL) {
        found = oldest(recordings, false);
        found->key = *key;
    }
    found->last_used = ++recordings->n_uses;
    return found;
}

void recordings_keep(struct recordings *recordings, struct known_step *step,
                     struct device_graph *recording) {
    if (recordings->n_recorded == MAX_RECORDINGS) {
        forget(recordings, oldest(recordings, true));
    }
    step->recording = recording;
    recordings->n_recorded++;
}
