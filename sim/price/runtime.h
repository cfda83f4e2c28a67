/* Runtimes: the implementation a system runs on, as far as time and memory depend on it.
 *
 * The papers compare implementations, not designs; so a system names its runtime. A runtime decides
 * whether batches are padded, which operators are fused, what copies of the logits exist, and what
 * the host pays per step, per request and per launch. Host terms are those of one reference host
 * (the machine of the H200 reference runs); the system's host (experiments/study/hosts) scales
 * them.
 */
#ifndef UNMASK_SIM_PRICE_RUNTIME_H
#define UNMASK_SIM_PRICE_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/input/catalogue.h"
#include "sim/base/provenance.h"
#include "sim/price/profile/profile.h"
#include "sim/step/graph.h"

enum host_mode {
    HOST_OVERLAPS, /* launches run ahead of the device: wall = max(device, host) */
    HOST_SERIAL,   /* the host waits within the step: wall = device + host */
    /* The trunk is launched while the device runs it, the head runs after it, and then the host
     * looks at the logits of each request: wall = max(trunk, host) + head + look. */
    HOST_BY_LAYERS,
    /* Launches of the step and of its layers run ahead of the device; a loop over the requests
     * waits for it, and the short kernels that the loop launches run while it goes on:
     * wall = max(device less those kernels, host of step and layers) + of each request the longer
     * of its loop's host time and kernels. */
    HOST_LOOPS,
};

struct runtime {
    /* Graph. */
    bool varlen; /* packed batches; off: every span is padded to the longest */
#define GRAPH_FLAG(field, doc)                        bool field;
#define GRAPH_BYTES(field, initial, least, most, doc) int64_t field;
#include "sim/step/runtime_part.def"
    bool varlen_attention; /* single queries as FlashAttention-2 serves them (sim/price/lookup.h) */
    bool whole_head;       /* of several ranks each has the whole output head */
    bool batch_invariant;  /* the real engine's alone: it changes no graph and no price */
    bool vmm;              /* live runs map memory as steps need it; changes no result */
    /* Host, ns on the reference host. */
    uint32_t host_mode;
    double host_step_ns[HOST_KIND_COUNT];    /* per step, however many layers */
    double host_request_ns[HOST_KIND_COUNT]; /* and for each request of the kind in it */
    double host_layer_ns[HOST_KIND_COUNT];   /* per step and layer */
    double host_layer_request_ns[HOST_KIND_COUNT];
    /* Serial whatever the mode, for each time that the scheduler is asked and for each request
     * then: steps that follow without it pay none. */
    double host_visit_ns, host_visit_request_ns;
    /* And for each cached row of its requests, where prefixes are shared, which the system says. */
    double host_visit_cached_ns;
    bool shares_prefixes;
    double host_plan_ns; /* serial as well: each plan that a step is searched for with */
    double host_look_ns; /* for each request, once its logits are there (HOST_BY_LAYERS) */
    /* Where launches run ahead: time of a step beyond the device's. A step with a selection takes
     * as long as one with a refresh. */
    double host_sync_ns[HOST_KIND_COUNT];
    double host_sync_layer_ns; /* and for each layer of a step of reuse alone */
    /* This host's time over the reference host's; the system writes it, from its host. */
    double host_factor;
    /* Device time of a step whose operators are issued one by one; the system writes it, from the
     * profile. */
    double issued_ns[HOST_KIND_COUNT];
    /* Between two submissions; the system writes it, from the profile. */
    double between_ns;
    /* Launches beyond the graph's operators: each costs the device a short kernel. */
    double launches_step[HOST_KIND_COUNT], launches_request[HOST_KIND_COUNT];
    double launches_layer[HOST_KIND_COUNT], launches_layer_request[HOST_KIND_COUNT];
    double small_kernel_ns;
    double product_ratio; /* of products' times to the profile's; 0: 1 */
};

/* One table for all runtimes: the keys `runtime.NAME` of a system. */
extern const struct param runtime_params[];
extern const size_t runtime_n_params;

struct runtime_preset {
    const char *name, *path, *unread; /* as struct catalogued has them */
    const char *doc, *source;
    const char *host_kind_word;
    /* Source of the host terms; model they were measured with (NULL: any). */
    enum provenance_kind host_kind;
    const char *host_model;
    struct runtime runtime;
};

/* The runtime of that name, or of the file at that path; all of the data folder
 * (sim/price/runtimes), NULL after the last. NULL and a sentence on an error. */
const struct runtime_preset *runtime_find(const char *name, struct err *err);
const struct runtime_preset *const *runtime_all(struct err *err);

#endif
