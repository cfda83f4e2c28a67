/* Serving: a run whose requests come from clients. */
#ifndef UNMASK_EXPERIMENTS_SERVE_SERVE_H
#define UNMASK_EXPERIMENTS_SERVE_SERVE_H

#include "analysis/store/store.h"
#include "experiments/run/compose.h"
#include "experiments/serve/http.h"
#include "experiments/serve/inbox.h"

struct serve_request {
    const struct run_request *run; /* its `is_served` is true */
    const char *listen, *key_file; /* NULL: no key */
    const char *name;              /* the model's, for clients */
    const char *tokenizer, *chat;  /* NULL: none */
    bool echoes;
    const char *answers; /* a length model, "lognormal,mean=200"; NULL: outputs are answers */
    enum serving_clock clock;
    double speed;
    uint32_t clients;
    uint32_t output_tokens; /* of requests that do not say */
    uint32_t capacity;      /* requests in the system at once; 0: the system's max_in_system */
    struct http_limits limits;
    int64_t drain_ns;
    const char *db; /* NULL: nothing is recorded */
    enum store_level level;
};

/* Serves until the program is asked to end, or the run fails. `*out`, where it is not NULL, is the
 * run that was served, for its summary: the caller closes it. */
int serve_run(const struct serve_request *request, struct composition **out, struct err *err);

#endif
