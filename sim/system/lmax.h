/* The longest canvas that fits: how much memory the worst step of one request holds, and where the
 * length of its canvas has to stop.
 *
 * The worst step is the first, in which every output position is masked; where keys and values are
 * exact, the widest piece of the prefill, with the rows of the last block. A planned step holds
 * what its plan ends at. With an allocator of PyTorch a whole run is played: the first step twice
 * (Mosaic's server warms up with the step in hand, gpu_worker.py; of a script's loop the second
 * meets what the first left), then with fewer and fewer masked positions. It holds what the
 * allocator reserves, and it does not fit when one allocation is refused after all idle memory has
 * gone back to the device.
 *
 * The model's positions are no limit here: lengths beyond them are about memory alone. */
#ifndef UNMASK_SIM_SYSTEM_LMAX_H
#define UNMASK_SIM_SYSTEM_LMAX_H

#include "sim/memory/live.h"
#include "sim/system/system.h"

enum {
    LMAX_GRANULE_TOKENS = 64,   /* canvases are multiples of it, unless asked otherwise (assumed) */
    LMAX_MOST_TOKENS = 1 << 24, /* no search goes further */
    LMAX_STEPS = 10, /* played, unless asked otherwise: Mosaic's released benchmarks' --steps */
    LMAX_MOST_STEPS = 4096,
    LMAX_MOST_BEFORE = 8,
    LMAX_MOST_BATCH = 128,
};

/* What the share of the prompt is a share of: the paper's text has it as prompt to output, its
 * released benchmark as prompt to both. */
enum share_of { SHARE_OF_CANVAS, SHARE_OF_OUTPUT };

/* SHARE_OF_CANVAS of "canvas", SHARE_OF_OUTPUT of "output", -1 of anything else. */
int share_of_index(const char *word);

struct lmax_request {
    const struct system *system;
    double prompt_share; /* >= 0; of the canvas: < 1 */
    enum share_of share_of;
    int64_t memory_bytes;    /* of the device; 0: the GPU's */
    uint32_t canvas_tokens;  /* this canvas alone; 0: search */
    uint32_t granule_tokens; /* canvases are multiples of it; 0: LMAX_GRANULE_TOKENS */
    uint32_t batch;          /* canvases of that length in a step; 0: one */
    double decoded_share;    /* of the outputs, decoded before the planned step in question */
    /* With an allocator of PyTorch: denoising steps that unmask the outputs in equal parts, 0:
     * LMAX_STEPS; and canvases that ran before in the same process, as shares of the canvas in
     * question, each for as many steps. */
    uint32_t n_steps;
    double before[LMAX_MOST_BEFORE];
    uint32_t n_before;
};

/* What keeps a step from fitting. */
enum lmax_bound {
    BOUND_ATTENTION = PART_ATTENTION,
    BOUND_FFN = PART_FFN,
    BOUND_LOGITS = PART_LOGITS,
    BOUND_FRAGMENTATION, /* what is in use would fit; the holes between do not */
    BOUND_NONE,          /* it fits, and no longer one was tried */
    N_LMAX_BOUNDS,
};
extern const char *const lmax_bound_names[N_LMAX_BOUNDS];

/* The worst step of one request, or of a batch of equals. */
struct step_memory {
    uint32_t canvas_tokens, output_tokens;
    bool fits;
    int64_t cached_bytes;         /* rows that its cache policy keeps, of the whole batch */
    int64_t held_bytes;           /* of the workspace: the plan's end, or the most reserved */
    int64_t unlimited_bytes;      /* what an allocator reserves on a device without end */
    uint32_t chunks[CHUNK_KINDS]; /* in which the loops of a planned step come; else 0 */
    struct live
        live;   /* of an allocator's run: of its second step, which meets what the first left */
    double par; /* peak over average of what is in use, of the first step alone */
    struct err misfit; /* why a planned step does not fit */
};

struct lmax {
    int64_t memory_bytes, weights_bytes, reserve_bytes;
    int64_t available_bytes;            /* left for cached rows and workspace */
    struct step_memory longest, beyond; /* the last canvas that fits, and one granule more */
    enum lmax_bound bound;              /* what stops the latter */
};

/* What an allocator reserves beyond what is in use, as a share of it, where memory is no limit. */
double lmax_inflation(const struct step_memory *step);

/* A request with a canvas of that many tokens; `available_bytes` as above. */
void lmax_step(const struct lmax_request *request, uint32_t canvas_tokens, int64_t available_bytes,
               struct step_memory *out);

/* ERR_WORLD with the figures when not even the shortest canvas fits, or not the one asked for;
 * ERR_USAGE for a system whose steps the asked allocator cannot model. */
int lmax_find(const struct lmax_request *request, struct lmax *out, struct err *err);

/* From now on every step comes in the chunks that the longest canvas with half of it prompt needs.
 * ERR_WORLD where no canvas fits. */
int system_chunk_as_longest(struct system *system, struct err *err);

#endif
