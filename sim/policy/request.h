/* A request as policies see it: read-only to them; the serving loop is the writer of every field.
 */
#ifndef UNMASK_SIM_POLICY_REQUEST_H
#define UNMASK_SIM_POLICY_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/base/sampling.h"
#include "sim/policy/rows.h"
#include "sim/step/shape.h"

enum request_state {
    REQUEST_PENDING,   /* not yet arrived */
    REQUEST_QUEUED,    /* arrived, holds nothing */
    REQUEST_RUNNING,   /* holds KV memory */
    REQUEST_DONE,      /* every position committed, or text that ended where the system stops */
    REQUEST_PREEMPTED, /* gave its memory back, waits again: to be computed anew, or swapped out */
    REQUEST_REJECTED,  /* will never run; the reason is recorded */
};
enum { REQUEST_STATE_COUNT = REQUEST_REJECTED + 1 };
extern const char *const request_state_names[REQUEST_STATE_COUNT];

/* How busy a request's replica is, as the loop last counted it. */
struct replica_load {
    int64_t now_ns;                        /* when it counted; 0: not yet */
    int64_t kv_free_bytes, kv_total_bytes; /* of the pool */
    uint32_t n_running, n_waiting;         /* of the replica, the request among them */
    uint32_t max_requests;                 /* running at once; UINT32_MAX: no limit */
    uint32_t max_batched_tokens;           /* query tokens of a step */
};

/* What the model's attention mask means for a request. */
enum causality {
    SEES_CANVAS, /* every position sees the whole canvas; blocks start where the prompt ends */
    SEES_BLOCKS, /* a block and those before it; blocks start at multiples of block_tokens, so that
                    the end of the prompt may stand in the first */
    SEES_TOKENS, /* itself and what is before it; a position's logits decide on the next, so that a
                    block of one token starts after the position that decides on it */
    SEES_CANVASES, /* as SEES_TOKENS before the block, and in the block all of it; blocks start
                      where the prompt ends */
};

/* Whether a decoder revises tokens of the window. */
enum window_edits {
    EDITS_NONE, /* it never does */
    EDITS_OPEN, /* it may: also where nothing is masked, until such a pass changes nothing */
    EDITS_OVER, /* not any more */
};

/* Of a request, for the functions of sim/policy/window.h, which say what each means. */
struct window {
    uint32_t steps, block, passes, first, masked, length, known, front, uncached;
    uint16_t most;
    uint8_t slides;
    uint8_t edits; /* enum window_edits */
    uint32_t kept, reach, earlier, before, width, threshold, active, unseen;
};

struct request {
    /* Progress. A line of the processor's cache, 64 bytes, has what every step changes, each next
     * to one that stays the same, so that compilers do not gather them in vectors, which is slower.
     * All of a request are whole lines, of which requests side by side share none. */
    uint32_t steps;            /* steps done over all blocks */
    uint32_t state;            /* enum request_state */
    uint32_t committed_tokens; /* over all blocks */
    uint32_t commit_tokens;    /* positions the decoder commits at the end of the next step, or
                                  fewer where an eviction leaves fewer masked ones; 0: known only
                                  then */
    uint32_t steps_to_change;  /* consecutive steps for which span and commit_tokens hold, >= 1 */
    uint32_t answer_tokens;    /* output positions up to and including the end of text, once the
                                  system has found it and stops there: the active block is then the
                                  last. 0 before, and where the system does not look
                                  (early_stop = off) */
    struct window window;

    /* The next step, renewed by the loop whenever the policies' word changes. */
    struct span span; /* made of the cache policy's row sets */
    struct row_sets rows;

    /* A refresh that its cache policy lets wait (`put_off` of sim/policy/cache/cache.h): by how
     * many steps from here on the one that is its next step can be put off, 0: by none, or it is no
     * refresh; and how many steps ago the first one was due that was put off, 0: none was. */
    uint32_t refresh_waits, overdue_steps;

    uint32_t preemptions;
    uint32_t tenant;           /* by trace or workload; 0 where it names none */
    uint32_t priority;         /* likewise; larger is more urgent */
    uint32_t predicted_tokens; /* of its answer, by a predictor that may err; 0: no prediction */

    /* Fixed on arrival. */
    uint32_t prompt_tokens, output_tokens;
    uint32_t canvas_tokens; /* prompt + output */
    uint32_t prefix_tokens; /* leading ones of the prompt that other prompts begin with, where the
                               cache policy has leading layers; else 0 */
    uint32_t block_tokens;  /* positions decoded together; the last block may be shorter */
    uint32_t steps_per_block;
    uint16_t causal;  /* enum causality: what a position sees, and what its logits decide on */
    uint16_t shifted; /* 1, not under SEES_TOKENS: a position's logits decide on the next, too */

    /* Cached state. While it runs a request holds what it needs for its next step, or more. */
    uint32_t cached_tokens; /* leading positions whose exact keys and values are held; where the
                               cache policy has leading layers, those of its shared prefix by
                               itself: 0 or prefix_tokens */
    uint32_t kv_rows;       /* rows per layer for its next step, by the cache policy's word */
    int64_t kv_bytes;       /* the same in bytes, rounded up to pages or a slab */
    int64_t kv_held_bytes;  /* held now; 0 while it waits */
    int64_t host_bytes; /* of it in the host's memory, while it waits after it was swapped out; 0:
                           nothing is */

    /* What it was given so far (kept as scheduler.h says, reads_all): with `steps`, its passes. */
    int64_t service_ns;      /* how long the steps that it took part in lasted, as they stood */
    uint64_t service_tokens; /* query tokens of its passes */
    int64_t admitted_ns;     /* when it first ran; -1: not yet */
    int64_t first_token_ns;  /* end of its first block, whose tokens can be read; -1: not yet */

    /* Fixed on arrival as well. */
    uint64_t id;
    int64_t arrival_ns;
    int64_t deadline_ns;      /* when it should be finished; INT64_MAX: it has no deadline */
    struct sampling sampling; /* what it says of how its tokens are drawn */

    /* For decoders and caches that read it (their flag reads_load), else zeros: the load when its
     * next step was planned; while a step is under way, and until it has ended, when that began. */
    struct replica_load load;

    uint32_t checks;   /* decoders that check drafts: 1, they checked those of the last pass that
                          drafted */
    uint32_t spare[9]; /* to whole lines */
};

/* Whether a step runs the rows before the positions that it lists (`skips`). */
static inline bool rows_are_before(const struct row_sets *rows, const struct request *request) {
    return rows->skips != 0 && rows->settles != BLOCK_WHOLE && request->shifted != 0 &&
           request->causal == SEES_CANVAS;
}

#endif
