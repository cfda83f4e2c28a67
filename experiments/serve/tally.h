/* What a server counts of itself, for /metrics. All of it is under the inbox's lock, but for
 * what the thread of HTTP alone counts (api.h). */
#ifndef UNMASK_EXPERIMENTS_SERVE_TALLY_H
#define UNMASK_EXPERIMENTS_SERVE_TALLY_H

#include <stdint.h>
#include <stdio.h>

enum { TALLY_MOST_BOUNDS = 24 };

/* Numbers of seconds by size: at most bounds[i], the last of which is 0, and all others. */
struct tally_spread {
    const double *bounds;
    uint64_t n[TALLY_MOST_BOUNDS + 1], total;
    double sum;
};

enum finish { FINISH_STOP, FINISH_LENGTH, FINISH_COUNT };
enum refusal {
    REFUSED_REQUEST,
    REFUSED_KEY,
    REFUSED_QUEUE,
    REFUSED_CLOSING,
    REFUSED_LOOP,
    REFUSAL_COUNT
};

struct tally {
    uint64_t n_running, n_waiting, n_in_system;
    uint64_t prompt_tokens, generation_tokens, cached_tokens;
    uint64_t finished[FINISH_COUNT], refused[REFUSAL_COUNT], cancelled;
    uint64_t preemptions, steps, positions, committed, request_steps;
    int64_t kv_used_bytes, kv_total_bytes;
    struct tally_spread ttft_s, latency_s, tpot_s; /* by the serving clock */
    struct tally_spread taken_s, written_s;        /* by the machine's: what the endpoint adds */
};

void tally_init(struct tally *tally);
void tally_added(struct tally_spread *spread); /* of what the endpoint adds */
void tally_add(struct tally_spread *spread, double value);

/* In the text format of Prometheus; `model` is a label. */
void tally_print(const struct tally *tally, const char *model, FILE *out);

/* The table of what is printed, for the reference page: "| name | type | meaning |". */
void tally_list(FILE *out);

#endif
