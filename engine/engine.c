#include "engine/engine.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "engine/device/mapping.h"
#include "engine/supported.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/model/ranks.h"
#include "sim/system/system.h"

/* Canvases take four bytes a token: as many as any pool of cached rows is likely to serve. */
enum { CANVAS_TOKENS = 4 << 20, MOST_REQUESTS = 4096 };

/* A pool that workspace and rows share ends anywhere. */
static int64_t aligned(int64_t bytes) {
    return align_up(bytes, PLACEMENT_ALIGN_BYTES);
}

/* What the device holds in addition to the weights. */
static int64_t region_bytes(const struct system *system, int64_t granule_bytes) {
    const struct budget *budget = &system->budget;
    int64_t region = aligned(budget->pool_bytes) + aligned(system_prefix_bytes(system)) +
                     (budget->shares_pool ? 0 : aligned(budget->activation_bytes));
    return align_up(region, granule_bytes);
}

static int check_memory(const struct engine *engine, const struct engine_request *request,
                        struct err *err) {
    const struct budget *budget = &engine->system->budget;
    const struct device_facts *facts = &engine->device.facts;
    int64_t needed = aligned(budget->weights_bytes) + region_bytes(engine->system, 1) +
                     budget->reserve_bytes - system_prefix_bytes(engine->system);
    if (needed <= facts->free_bytes) {
        return 0;
    }
    char needs[32], has[32], lacks[32];
    const double share =
        engine->system->settings.memory_utilization * (double)(facts->free_bytes) / (double)needed;
    const double fits = fmax(floor(100 * share) / 100, 0.01);
    if (request->fits != NULL && engine_device_is(facts, engine->system->gpu)) {
        *request->fits = fits;
    }
    return err_world(err,
                     "%s has %s free, %s on %s plans %s: %s are missing "
                     "(memory_utilization = %.2f would fit)",
                     facts->name, num_format_bytes(has, sizeof has, (double)facts->free_bytes),
                     engine->system->name, engine->system->gpu->name,
                     num_format_bytes(needs, sizeof needs, (double)needed),
                     num_format_bytes(lacks, sizeof lacks, (double)(needed - facts->free_bytes)),
                     fits);
}

/* Of the residual stream where the first layer runs whole canvases: as many as canvases have room
 * for and the workspace for their residuals; else 0. */
static uint32_t most_stream_tokens(const struct system *system) {
    const struct budget *budget = &system->budget;
    const int64_t bytes = budget->shares_pool ? budget->pool_bytes : budget->activation_bytes;
    const int64_t rows = bytes / (system->model->hidden * graph_element_bytes(&system->graph));
    return system->rows.kind != ROW_FEATURES ? 0
           : rows < CANVAS_TOKENS            ? (uint32_t)rows
                                             : (uint32_t)CANVAS_TOKENS;
}

/* A pattern's scores, by the root of the number of heads. */
static bool divides_by_heads(const struct system *system) {
    const uint32_t scores = system->rows.pattern.scores;
    return scores == PATTERN_HEADS ||
           (scores == PATTERN_RELEASED && !system->model->shifted_logits);
}

/* Of n requests in the system, each of at most max_positions: where one of them finds no room, the
 * others' canvases, n - 1, and the gaps between them, n that are too short for it, take less. */
static int64_t most_canvas_tokens(const struct system *system, int64_t max_positions) {
    const int64_t enough = 2 * (int64_t)system->settings.max_in_system * max_positions;
    return enough < CANVAS_TOKENS ? enough : CANVAS_TOKENS;
}

static struct step_limits limits_of(const struct system *system) {
    const struct settings *settings = &system->settings;
    const uint32_t max_positions = settings->context_tokens + system_check_rows(system);
    const struct budget *budget = &system->budget;
    uint32_t most = budget->max_requests > 0 ? budget->max_requests : settings->max_in_system;
    most = most < settings->max_batched_tokens ? most : settings->max_batched_tokens;
    const uint32_t stream = most_stream_tokens(system);
    return (struct step_limits){
        .max_requests = most < MOST_REQUESTS ? most : MOST_REQUESTS,
        .max_tokens = settings->max_batched_tokens,
        .max_logit_rows =
            stream > settings->max_batched_tokens ? stream : settings->max_batched_tokens,
        .max_stream_tokens = stream,
        .max_unrolled = settings->unroll_maximum,
        .max_positions = max_positions,
        .canvas_tokens = most_canvas_tokens(system, max_positions),
        .workspace_bytes =
            aligned(budget->shares_pool ? budget->pool_bytes : budget->activation_bytes),
        .pool_bytes = aligned(budget->pool_bytes) + aligned(system_prefix_bytes(system)),
        .places = settings->max_requests * (int64_t)settings_window_tokens(settings),
        .credit_slots = system->credit_slots,
        .page_rows = system_page_rows(system),
        .shares_pool = budget->shares_pool,
        .maps = system->runtime.vmm,
        .smoothing = settings->smoothing,
        .selects_together = system->rows.chooser == CHOSEN_FOR_HEADS,
        .pattern_tokens = system->rows.pattern.tokens,
        .pattern_by_heads = divides_by_heads(system),
        .renews_rows = system_keeps_canvas(system),
    };
}

static double logit_divisor(const struct system *system) {
    return system_divides_first(system) ? system->settings.temperature : 0;
}

static int open_ranks(struct engine *engine, const struct engine_request *request,
                      struct err *err) {
    const struct system *system = request->system;
    const struct ranks_request wanted = {.device = &engine->device,
                                         .number = request->device,
                                         .model = system->model,
                                         .storage = system->graph.storage,
                                         .weights = request->weights,
                                         .logit_divisor = logit_divisor(system),
                                         .batch_invariant = system->runtime.batch_invariant};
    if (system->settings.tensor_parallel == 1) {
        return 0;
    }
    int status = ranks_open(&wanted, &engine->ranks, err);
    return status != 0 ? status : forward_lead(engine->forward, engine->ranks, err);
}

static unsigned where_of(const struct engine_request *request) {
    return (request->backend == BACKEND_CPU ? WHERE_CPU : WHERE_CUDA) |
           (request->system->settings.tensor_parallel > 1 ? WHERE_RANKS : 0);
}

int engine_open(const struct engine_request *request, struct engine **out, struct err *err) {
    struct engine *engine = mem_zeroed(1, sizeof *engine);
    engine->system = request->system;
    engine->limits = limits_of(request->system);
    int status = supports_system(request->system, where_of(request), err);
    if (status == 0) {
        status = engine_device_open_at(request->backend, request->library, request->device,
                                       &engine->device, err);
    }
    status = status == 0 ? check_memory(engine, request, err) : status;
    if (status == 0 && engine->device.table->batch_invariant != NULL) {
        engine->device.table->batch_invariant(engine->device.device,
                                              request->system->runtime.batch_invariant);
    }
    if (status == 0) {
        status = weights_open_stored(&engine->weights, &engine->device, request->system->model,
                                     &request->system->graph.storage, 0, request->weights, err);
    }
    if (status == 0 && logit_divisor(request->system) > 0) {
        status = weights_divide_logits(&engine->weights, logit_divisor(request->system), err);
    }
    if (status == 0) {
        status = forward_open(&engine->device, &request->system->graph, &engine->weights,
                              &engine->limits, &engine->forward, err);
    }
    status = status == 0 ? open_ranks(engine, request, err) : status;
    if (status != 0) {
        engine_close(engine);
        return status;
    }
    *out = engine;
    return 0;
}

void engine_close(struct engine *engine) {
    if (engine != NULL) {
        forward_close(engine->forward);
        ranks_close(engine->ranks);
        weights_close(&engine->weights);
        engine_device_close(&engine->device);
        free(engine);
    }
}

struct engine_memory engine_memory(const struct engine *engine) {
    const struct device_table *table = engine->device.table;
    const struct mapping *mapping = forward_mapping(engine->forward);
    int64_t side_bytes = forward_side_bytes(engine->forward);
    struct engine_memory memory = {
        /* Every matrix of the weights begins at an aligned address: small ones take a little more
         * than their numbers. */
        .planned_bytes = engine->weights.layout.bytes +
                         region_bytes(engine->system, mapping != NULL ? mapping->granule_bytes : 1),
        .metered_bytes = table->allocated_bytes(engine->device.device) - side_bytes,
        .side_bytes = side_bytes + table->own_bytes(engine->device.device),
        .is_mapped = mapping != NULL,
    };
    if (mapping != NULL) {
        struct mapping_cost cost = mapping_total(mapping);
        memory.unmapped_bytes = mapping->bytes - mapping_mapped_bytes(mapping);
        memory.mapped_peak_bytes = mapping->most_bytes;
        memory.lent_bytes = mapping->lent_bytes;
        memory.mapping_calls = cost.n;
        memory.mapping_ns = cost.ns;
    }
    return memory;
}

static uint32_t n_devices(const struct engine *engine) {
    return engine->ranks != NULL ? model_ranks(engine->system->model) : 1;
}

void engine_facts(const struct engine *engine, uint32_t most, const struct device_facts **out,
                  uint32_t *n) {
    for (*n = 0; *n < n_devices(engine) && *n < most; ++*n) {
        out[*n] = *n == 0 ? &engine->device.facts : &ranks_device(engine->ranks, *n)->facts;
    }
}

static double energy_j(const struct engine_device *device) {
    struct device_vitals vitals = {0};
    device->table->vitals(device->device, &vitals);
    return vitals.energy_j;
}

double engine_energy_j(const struct engine *engine) {
    double sum_j = energy_j(&engine->device);
    const uint32_t n_ranks = n_devices(engine);
    for (uint32_t rank = 1; rank < n_ranks && sum_j > 0; rank++) {
        const double one_j = energy_j(ranks_device(engine->ranks, rank));
        sum_j = one_j > 0 ? sum_j + one_j : 0;
    }
    return sum_j;
}
