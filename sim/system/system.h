/* A system: a configuration of policies, a runtime, a model and a GPU, resolved into what the loop
 * needs.
 *
 * Systems are sections of experiments/study/systems.ini. A section may name a `base` and override
 * it; a key may end in @GPU and then holds on that GPU only; a value may be $NAME, a calibrated
 * constant of experiments/study/calibrated.ini. `--set` overrides the file. */
#ifndef UNMASK_SIM_SYSTEM_SYSTEM_H
#define UNMASK_SIM_SYSTEM_SYSTEM_H

#include <stdbool.h>

#include "sim/base/input/config.h"
#include "sim/base/provenance.h"
#include "sim/base/warning.h"
#include "sim/decode/process.h"
#include "sim/memory/budget.h"
#include "sim/policy/cache/cache.h"
#include "sim/policy/decoder/decoder.h"
#include "sim/policy/router/router.h"
#include "sim/policy/scheduler/scheduler.h"
#include "sim/price/price.h"
#include "sim/system/host.h"
#include "sim/system/setting.h"
#include "sim/system/settings.h"

/* Whose kernels prices are of: the best there is for the system, those that unmask measured, those
 * that others did and were imported; each on the system's GPU, or scaled from its donor. Or no
 * kernels': the data sheet. */
enum price_source { PRICES_BEST, PRICES_MEASURED, PRICES_IMPORTED, PRICES_ROOFLINE };
enum { PRICE_SOURCES = PRICES_ROOFLINE + 1 };
extern const char *const price_source_words[PRICE_SOURCES + 1]; /* NULL after the last */

struct system {
    char name[64];
    const struct model *model;
    const struct gpu *gpu, *donor; /* donor: from whom prices are transferred, where they are */
    struct settings settings;
    struct runtime runtime; /* the preset's, with what was set since */
    const struct runtime_preset *preset;
    const char *runtime_name;
    struct host host;               /* the machine that the GPU is in; see system_host */
    uint32_t host_terms_of_profile; /* how many of the runtime's host terms the profile gave */
    const struct planner *planner;
    const struct scheduler *scheduler;
    const struct cache_policy *cache;
    const struct decoder *decoder;
    const struct router *router;
    struct row_sets rows; /* the cache policy's answer to a request on a long canvas: what is the
                             same in all its answers */
    struct decode_process process; /* what confidences are drawn from */
    char confidence[64];           /* its name */
    void *scheduler_state, *cache_state, *decoder_state, *router_state;
    struct setting applied[MAX_SETTINGS]; /* in force, last writer of each key */
    uint32_t n_applied;
    uint32_t layer; /* being applied: defaults, each section, the command line */
    struct calibrated calibrated[MAX_CALIBRATED];
    uint32_t n_calibrated;
    struct assumption assumed[MAX_ASSUMED];
    uint32_t n_assumed;
    bool hides_shipped;    /* the user's section, of the name of a shipped one */
    char unused_file[192]; /* of the user's, of which no system is run; "": none */

    /* Resolved. */
    struct gpu resized;        /* the GPU with other memory than its file says, where it has that */
    struct model changed;      /* the model with what `model.KEY` sets, where something is set */
    struct model cut;          /* the model with fewer layers (settings.layers), where it is that */
    const struct model *whole; /* what all ranks hold together; `model` is one rank's share */
    struct model rank;         /* that share, where settings.tensor_parallel divides the model */
    int64_t left_out_bytes;    /* of the weights of its other layers */
    struct graph graph;
    const struct profile *profile; /* NULL: roofline */
    const struct profile
        *behind;            /* answers for sizes that `profile` has not measured; may be NULL */
    char profile_path[192]; /* of a user's own; "": the GPU's */
    char profile_name[192]; /* that path; GPU/MODEL: the GPU's of this model alone; else the GPU */
    enum price_source price_source; /* that was asked for */
    bool asks_longest_canvas;
    struct expert_routing routing;
    struct cost_model *cost;
    struct chunk_rule chunks;
    struct budget budget;
    bool speculates;       /* its decoder checks drafts in passes of twice the rows */
    bool moves;            /* its decoder inserts and drops positions */
    bool renoises;         /* its decoder begins with random tokens and decides on all anew */
    bool revises;          /* its decoder may give tokens that were chosen before another one */
    int64_t row_bytes;     /* one row of cached state, all layers */
    uint32_t credit_slots; /* tokens of a position's list; 0: the decoder gives no credit */
    int64_t
        decoder_bytes; /* what the decoder keeps of max_requests requests; part of the reserve */
    int64_t expected_bytes; /* the same of iteration smoothing */
    int64_t place_bytes;    /* both, of one request: moved with its rows where it is swapped */
};

struct system_request {
    const char *system, *model, *gpu; /* model NULL: the system's own or llada-8b */
    const char *workload;             /* whose decode process is the default; NULL: none */
    const char *systems_path;         /* the user's own, with the shipped ones; NULL: none */
    const char *compared;             /* "A,B": systems that are run with it; NULL: none */
    const char *profile_path;         /* NULL: the GPU's; else measured on the GPU named */
    enum price_source price_source;   /* whose; ERR_USAGE where there are none such */
    const struct setting *overrides;  /* --set, in order */
    uint32_t n_overrides;
    uint32_t longest_canvas_tokens; /* of the workload's requests; 0: not known */
    int64_t memory_bytes;           /* of the GPU; 0: as its file says (gpu_is_host) */
    bool
        random_weights; /* a device runs it with such weights: expert_router = random, unless set */
    bool roofline;      /* ignore the GPU's profile */
    bool statistics;    /* the head makes margins and entropies, whether or not the decoder asks */
    bool fills_gaps; /* operators that no profile has rows of are priced by roofline, not refused */
};

/* Look up, apply, resolve. On success the caller runs system_close. */
int system_open(const struct system_request *request, struct system **out, struct err *err);
void system_close(struct system *system);

/* Bytes of this many rows of a request's cached state: layers with a window hold the last ones. */
int64_t system_rows_bytes(const struct system *system, uint32_t rows);

/* Whether it was resolved for want of the workload's longest canvas: open it again with that. */
bool system_asks_longest_canvas(const struct system *system);

/* Positions of a page of exact rows: as many as are handed out at once or, where requests share
 * whole blocks, of which a larger page would be parts, the most of which both are multiples. */
uint32_t system_page_rows(const struct system *system);

/* Whether all of a canvas is kept, so that steps that reuse rows renew some of them. */
bool system_keeps_canvas(const struct system *system);

/* The types that its settings resolve to. */
struct storage system_storage(const struct system *system);

/* What is kept free of weights, cached rows and workspace: settings.reserve_bytes, those for a
 * mixture of experts, what decoder and iteration smoothing keep, and the weights of layers that are
 * left out. */
int64_t system_reserve_bytes(const struct system *system);

/* Of these, what is kept of shared prefixes where leading layers take them over. */
int64_t system_prefix_bytes(const struct system *system);

/* GPUs of all replicas. */
uint32_t system_gpus(const struct system *system);

/* ERR_USAGE for a system that only `unmask plan lmax` knows: its steps are not planned. */
int system_serves(const struct system *system, struct err *err);

/* Whether steps have the operator that draws tokens, or takes other confidences of the most likely
 * ones than the softmax of their logits; of a temperature alone our own runtime has it where it
 * can, others do that in what they are priced by. */
bool system_reads_logits(const struct system *system);

/* Whether, where nothing else reads them, the engine has logits divided by the temperature as they
 * are computed, through the final norm: whatever reads or adds to them comes after. */
bool system_divides_first(const struct system *system);

/* Whether a simulated run depends on what is drawn from the decode process: not where a decoder is
 * blind to the model, nor where it commits by number and no cache asks which positions. */
bool system_draws(const struct system *system);

/* Whether steps may leave positions of a window out: by the cache policy's word, or the
 * scheduler's. */
static inline bool system_host_chooses(const struct system *system) {
    return system->decoder->choose != NULL || system->speculates || system->moves;
}

/* Rows that a request holds for the masks of a check, after those of its window. */
static inline uint32_t system_check_rows(const struct system *system) {
    return system->speculates ? system->settings.block_tokens : 0;
}

static inline bool system_leaves_out(const struct system *system) {
    return rows_leave_out(&system->rows) || system->scheduler->says_rows != 0;
}

/* Whether a request's logits decide on the next position, too. Not under SEES_TOKENS, where that is
 * meant anyway. */
static inline bool system_shifts(const struct system *system) {
    return system->model->shifted_logits && system->model->mask != MASK_CAUSAL;
}

/* Whether what the row before a request's window said of its first position outlasts the pass. */
static inline bool system_keeps_row(const struct system *system) {
    return system_shifts(system) && system->model->mask == MASK_BLOCK_CAUSAL &&
           system->settings.blocks_in_flight > 1;
}

#endif
