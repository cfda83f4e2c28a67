/* Requests as a server or its client measured them, read from any of these files:
 *   a CSV          arrival_us, input_tokens, output_tokens, first_token_us, last_token_us
 *   a database     what `unmask serve --db` recorded, one run
 *   GuideLLM's     JSON of `guidellm benchmark --output-path`; the last benchmark of several
 *   AIPerf's       profile_export.jsonl
 *   vLLM's         JSON of `vllm bench serve --save-result --save-detailed`
 *   SGLang's       JSON lines of `bench_serving --output-details`; the last of several runs
 *
 * A client's first token is the first event of its stream, which of a diffusion model is a block:
 * its records count one token there, and so does what is compared with them. */
#ifndef UNMASK_EXPERIMENTS_STUDY_TIMINGS_H
#define UNMASK_EXPERIMENTS_STUDY_TIMINGS_H

#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"
#include "sim/serve/record.h"

enum timings_kind { TIMINGS_CSV, TIMINGS_DATABASE, TIMINGS_CLIENT };

struct timings {
    enum timings_kind kind;
    struct request_record *records; /* [n], owned; CSV and client: all done */
    size_t n, room;
    size_t n_failed;     /* a client's requests without an answer, which are left out */
    bool lacks_arrivals; /* the client does not say when it sent them: all arrive at 0 */
    /* Of a database, what was served: names; the configuration as text, owned. "" and NULL. */
    char system[64], model[256], gpu[64], *config;
    /* Its first warning that its times are not the device's own (device-shared, device-slowed,
     * process-stopped), owned; NULL: there is none. */
    char *spoilt;
};

/* ERR_WORLD says what is wrong, with its line where there are lines. The caller runs timings_fini
 * whatever came of it. */
int timings_read(const char *path, struct timings *out, struct err *err);
void timings_fini(struct timings *measured);

/* The arrivals as a CSV into an open file, which a run can have as its workload. */
int timings_write(const struct timings *measured, int file, struct err *err);

/* A request whose last time is not before its first, in nanoseconds from the first arrival; added
 * to `out`. */
void timings_add(struct timings *out, int64_t arrival_ns, int64_t first_ns, int64_t last_ns,
                 uint32_t prompt_tokens, uint32_t output_tokens);

/* A client's file. */
int timings_read_client(const char *path, struct timings *out, struct err *err);

#endif
