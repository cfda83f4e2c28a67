/* The endpoints: OpenAI's, as far as they have a model here, over one table. */
#ifndef UNMASK_EXPERIMENTS_SERVE_API_H
#define UNMASK_EXPERIMENTS_SERVE_API_H

#include <stdio.h>

#include "experiments/serve/ask.h"
#include "experiments/serve/http.h"
#include "experiments/serve/inbox.h"

struct api {
    const struct http_library *http;
    struct inbox *inbox;
    struct replies *replies;
    struct ask_facts facts;
    const char *key; /* NULL: none is asked for */
    int64_t kv_total_bytes;
    int64_t started_s; /* since 1970 */
    uint64_t n_calls;
    char end_sentence[1024]; /* why calls that are left are refused */

    /* The thread of HTTP's. */
    struct bytes line, text;
    struct tally_spread written_s; /* the tally's: it alone adds to it */
};

/* What the library of HTTP calls; `state` is the api. */
struct http_hooks api_hooks(struct api *api);

/* Of inbox_end: answers a call that is given up. */
void api_give_up(void *state, struct call *call);

void api_close(struct api *api);

/* The table of endpoints and their answers, for the reference page. */
void api_list(FILE *out);

#endif
