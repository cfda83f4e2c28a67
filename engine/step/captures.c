#include "engine/step/captures.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"

void captures_open(struct captures *captures, const struct device_table *table,
                   struct device *device) {
    *captures = (struct captures){.table = table, .device = device};
    if (table->capture_begin != NULL) {
        captures->steps = mem_zeroed(MAX_KNOWN_STEPS, sizeof *captures->steps);
    }
}

static void close_graph(struct captures *captures, struct known_step *step) {
    if (step->graph != NULL) {
        captures->table->graph_close(captures->device, step->graph);
        step->graph = NULL;
    }
}

void captures_close(struct captures *captures) {
    for (int i = 0; captures->steps != NULL && i < MAX_KNOWN_STEPS; i++) {
        close_graph(captures, &captures->steps[i]);
    }
    free(captures->steps);
    *captures = (struct captures){0};
}

static int make_graph(struct captures *captures, const struct call_random *call,
                      uint32_t n_launches, struct device_graph **out) {
    const struct device_table *table = captures->table;
    int status = table->capture_begin(captures->device), launched = DEVICE_OK;
    for (uint32_t i = 0; status == DEVICE_OK && launched == DEVICE_OK && i < n_launches; i++) {
        launched = table->random(captures->device, call);
    }
    status = status == DEVICE_OK ? table->capture_end(captures->device, out) : status;
    return launched != DEVICE_OK ? launched : status;
}

int captures_warm(struct captures *captures, void *scratch, enum kernel_dtype dtype,
                  uint32_t n_launches) {
    const struct call_random call = {.y = scratch, .n = 1, .spread = 1, .dtype = dtype};
    struct device_graph *graphs[MAX_CAPTURED] = {NULL};
    int status = DEVICE_OK;
    for (int i = 0; captures->steps != NULL && status == DEVICE_OK && i < MAX_CAPTURED; i++) {
        status = make_graph(captures, &call, n_launches, &graphs[i]);
        status = status == DEVICE_OK ? captures->table->graph_launch(captures->device, graphs[i])
                                     : status;
    }
    if (captures->steps != NULL) {
        const int finished = captures->table->finish(captures->device);
        status = status == DEVICE_OK ? finished : status;
    }
    for (int i = 0; i < MAX_CAPTURED; i++) {
        if (graphs[i] != NULL) {
            captures->table->graph_close(captures->device, graphs[i]);
        }
    }
    return status == DEVICE_NO_MEMORY ? DEVICE_OK : status;
}

struct known_step *captures_find(struct captures *captures, const struct step_key *key,
                                 bool *is_new) {
    *is_new = true;
    if (captures->steps == NULL || captures->is_off) {
        return NULL;
    }
    const uint32_t place = captured_find(&captures->which, captured_hash(key, sizeof *key), is_new);
    struct known_step *step = &captures->steps[place];
    if (*is_new) {
        step->key = *key;
    } else if (memcmp(&step->key, key, sizeof *key) != 0) { /* of the same hash */
        *is_new = true;
        return NULL;
    }
    return step;
}

void captures_keep(struct captures *captures, struct known_step *step, struct device_graph *graph) {
    const uint32_t dropped = captured_keep(&captures->which, (uint32_t)(step - captures->steps));
    if (dropped < MAX_KNOWN_STEPS) {
        close_graph(captures, &captures->steps[dropped]);
    }
    step->graph = graph;
}
