/* A run on record as the workload of another: its requests come when they came then, under whatever
 * system, model and GPU are asked for. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "analysis/store/schema.h"
#include "experiments/run/compose_impl.h"
#include "sim/base/names.h"
#include "sim/base/rng.h"

/* Where SQLite keeps who a file belongs to. */
enum { HEAD_BYTES = 100, ID_AT = 68 };

/* A pipe, of which a byte read is gone, is none. */
static bool is_database(const char *path) {
    struct stat facts;
    unsigned char head[HEAD_BYTES] = {0};
    const bool is_file = stat(path, &facts) == 0 && S_ISREG(facts.st_mode);
    FILE *file = is_file ? fopen(path, "rb") : NULL;
    const size_t n = file != NULL ? fread(head, 1, sizeof head, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    uint32_t id = 0;
    for (int i = 0; i < 4; i++) {
        id = id << 8 | head[ID_AT + i];
    }
    return n == sizeof head && memcmp(head, "SQLite format 3", 16) == 0 &&
           id == SCHEMA_APPLICATION_ID;
}

struct runs {
    int64_t n, last;
};

static int count_run(void *state, const struct stored_run *run, struct err *err) {
    struct runs *runs = state;
    (void)err;
    runs->n++;
    runs->last = run->run;
    return 0;
}

/* Keys and options of a workload say nothing of one that is as it was. */
static int check_asked(const struct run_request *request, struct err *err) {
    const struct workload_options *options = &request->options;
    bool changes = options->requests > 0 || options->rate_per_s > 0 || options->input_tokens > 0 ||
                   options->output_tokens > 0;
    for (uint32_t i = 0; i < request->n_settings; i++) {
        changes = changes || name_behind(request->settings[i].key, "workload.") != NULL;
    }
    return changes ? err_usage(err,
                               "%s: the requests of a run on record are served as they came: "
                               "rates, numbers, lengths and workload.KEY are of other workloads",
                               request->workload)
                   : 0;
}

static int check_shares(const struct recorded *traffic, const char *path, struct err *err) {
    for (size_t i = 0; i < traffic->n_arrivals; i++) {
        const struct arrival *a = &traffic->arrivals[i];
        const bool is_of_another = a->shares > 0 && a->shares <= INT64_MAX;
        if ((a->prefix_tokens > 0 && !is_of_another) || traffic->lacks_prefixes) {
            return err_usage(err,
                             "%s: its requests share prefixes of none of them, which is not taken "
                             "from a record: run the workload that it was made of",
                             path);
        }
    }
    return traffic->n_arrivals > 0 ? 0 : err_world(err, "%s: its run has no requests", path);
}

uint64_t compose_traffic_digest(const struct recorded *traffic) {
    uint64_t digest = traffic->n_arrivals;
    for (size_t i = 0; i < traffic->n_arrivals; i++) {
        const struct arrival *a = &traffic->arrivals[i];
        digest = rng_key(digest, (uint64_t)a->arrival_ns, a->id);
        digest =
            rng_key(digest, (uint64_t)a->prompt_tokens << 32 | a->output_tokens, a->answer_tokens);
        digest = rng_key(digest, (uint64_t)a->cancel_ns, a->follows);
        digest = rng_key(digest, a->sampling.temperature, a->sampling.top_p);
        digest = rng_key(digest, a->sampling.top_k, a->sampling.seed);
        digest = a->prefix_tokens > 0 ? rng_key(digest, a->prefix_tokens, a->shares) : digest;
        digest = rng_key(digest, (uint64_t)a->due_ns, (uint64_t)a->tenant << 32 | a->priority);
    }
    return digest;
}

int compose_open_traffic(const struct run_request *request, struct composition *c,
                         struct err *err) {
    const char *path = request->workload;
    struct runs runs = {0};
    if (!request->takes_record || !is_database(path)) {
        return 0;
    }
    int status = check_asked(request, err);
    status = status != 0 ? status : store_open(path, STORE_READ, &c->traffic_store, err);
    status = status != 0 ? status : store_list_runs(c->traffic_store, count_run, &runs, err);
    if (status == 0 && runs.n != 1) {
        status =
            err_usage(err, "%s holds %" PRId64 " runs: a database that is a workload has one run",
                      path, runs.n);
    }
    status =
        status != 0 ? status : recorded_load_traffic(c->traffic_store, runs.last, &c->traffic, err);
    return status != 0 ? status : check_shares(c->traffic, path, err);
}
