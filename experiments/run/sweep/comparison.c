#include "experiments/run/sweep/comparison.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/caution.h"
#include "analysis/summary_output.h"
#include "experiments/run/cli/cmd.h"
#include "experiments/run/prices.h"
#include "sim/base/mem.h"

static struct campaign_point *point_at(const struct comparison *c, size_t system, size_t seed) {
    return &c->points[system * c->n_seeds + seed];
}

size_t comparison_base(const struct comparison *c, size_t i) {
    if (c->against.key[0] == '\0') {
        return 0;
    }
    return strcmp(c->against.key, "system") == 0 ? c->against_at * c->n_values + i % c->n_values
                                                 : i - i % c->n_values + c->against_at;
}

const char *comparison_base_name(const struct comparison *c, char text[AGAINST_NAME_CHARS]) {
    if (c->against.key[0] == '\0') {
        snprintf(text, AGAINST_NAME_CHARS, "%.*s", AGAINST_NAME_CHARS - 1, c->names[0]);
        return text;
    }
    const bool is_system = strcmp(c->against.key, "system") == 0;
    return against_name(&c->against,
                        is_system ? c->systems[c->against_at] : c->values[c->against_at], text);
}

/* ---- the same requests ---- */

static int by_id(const void *a, const void *b) {
    const struct request_record *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Marks the records that every system with a result served: the list of their ids, ascending. */
static size_t served_by_all(const struct comparison *c, size_t seed, uint64_t **out) {
    uint64_t *ids = NULL;
    size_t n = 0;
    bool is_first = true;
    for (size_t s = 0; s < c->n; s++) {
        struct campaign_point *point = point_at(c, s, seed);
        if (point->summary == NULL) {
            continue;
        }
        qsort(point->requests, point->n_requests, sizeof *point->requests, by_id);
        if (is_first) {
            ids = mem_zeroed(point->n_requests + 1, sizeof *ids);
        }
        size_t n_kept = 0, at = 0;
        for (size_t i = 0; i < point->n_requests; i++) {
            const struct request_record *record = &point->requests[i];
            while (!is_first && at < n && ids[at] < record->id) {
                at++;
            }
            bool listed = is_first || (at < n && ids[at] == record->id);
            if (listed && record->state == REQUEST_DONE) {
                ids[n_kept++] = record->id;
            }
        }
        n = n_kept;
        is_first = false;
    }
    *out = ids;
    return n;
}

/* `records` are sorted by id, as `ids` are. */
static json_t *measure(const struct campaign_point *point, const uint64_t *ids, size_t n,
                       struct err *err) {
    struct summary summary;
    summary_init(&summary, &point->request.slo);
    struct sink sink = summary_sink(&summary);
    size_t at = 0;
    int status = 0;
    for (size_t i = 0; status == 0 && i < point->n_requests; i++) {
        at += at < n && ids[at] < point->requests[i].id;
        if (at < n && ids[at] == point->requests[i].id) {
            status = sink.request(sink.state, &point->requests[i], err);
        }
    }
    summary_finish(&summary);
    json_t *object = status == 0 ? summary_requests_json(&summary) : NULL;
    summary_fini(&summary);
    return object;
}

int comparison_same_requests(struct comparison *c, struct err *err) {
    c->same = mem_zeroed(c->n * c->n_seeds + 1, sizeof(json_t *));
    for (size_t seed = 0; seed < c->n_seeds; seed++) {
        uint64_t *ids;
        size_t n = served_by_all(c, seed, &ids);
        int status = 0;
        for (size_t s = 0; status == 0 && s < c->n; s++) {
            const struct campaign_point *point = point_at(c, s, seed);
            if (point->summary != NULL) {
                json_t *object = measure(point, ids, n, err);
                c->same[s * c->n_seeds + seed] = object;
                status = object != NULL ? 0 : err_status(err);
            }
        }
        free(ids);
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

/* ---- warnings of the comparison ---- */

static bool any_is_drawn(const struct comparison *c) {
    for (size_t i = 0; i < c->n; i++) {
        if (json_is_true(json_object_get(sample_any(&c->samples[i]), "is_drawn"))) {
            return true;
        }
    }
    return false;
}

static void warn_of_base(const struct comparison *c, size_t i, struct warnings *out) {
    const size_t at = comparison_base(c, i);
    const struct sample *base = &c->samples[at];
    double rejected = cmd_number(sample_any(base), "rejected", NULL);
    if (c->same == NULL && sample_warns(base, WARNING_REJECTED) > 0 &&
        sample_any(&c->samples[i]) != NULL) {
        warnings_add(
            out, WARNING_REJECTED, rejected,
            "ratios are to %s, which rejected requests: they may compare different requests "
            "(--same-requests measures by those that all served)",
            c->names[at]);
    }
}

void comparison_settle(struct comparison *c) {
    for (size_t i = 0; i < c->n; i++) {
        struct sample *sample = &c->samples[i];
        sample->n = c->n_seeds;
        for (size_t seed = 0; seed < c->n_seeds; seed++) {
            sample->runs[seed] = point_at(c, i, seed)->summary;
            sample->requests[seed] = c->same != NULL ? c->same[i * c->n_seeds + seed] : NULL;
        }
    }
    bool is_drawn = any_is_drawn(c), has_warned = false;
    for (size_t i = 0; i < c->n; i++) {
        c->warnings[i] = sample_warnings(&c->samples[i]);
        if (sample_any(&c->samples[i]) == NULL || c->n < 2) {
            continue;
        }
        if (c->n_seeds == 1 && is_drawn) {
            sample_warn_of_one_seed(&c->warnings[i]);
        }
        const size_t base = comparison_base(c, i);
        if (i != base) {
            char ours[COMPARISON_NAME_CHARS + 4];
            snprintf(ours, sizeof ours, "%s is ", c->names[i]);
            sample_warn_of_ties(&c->samples[i], &c->samples[base], ours, c->names[base],
                                &c->warnings[i]);
            warn_of_base(c, i, &c->warnings[i]);
            has_warned = has_warned || prices_warn(sample_any(&c->samples[i]), c->names[i],
                                                   sample_any(&c->samples[base]), c->names[base],
                                                   &c->warnings[i]);
        }
    }
}

void comparison_fini(struct comparison *c) {
    for (size_t i = 0; c->same != NULL && i < c->n * c->n_seeds; i++) {
        json_decref(c->same[i]);
    }
    free(c->same);
}

/* ---- JSON ---- */

static json_t *number_or_null(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

/* What a system's object has in addition to its run, or runs. */
static void put_relation(const struct comparison *c, size_t i, json_t *object) {
    const struct sample *base = &c->samples[comparison_base(c, i)], *ours = &c->samples[i];
    struct spread speedup = sample_ratios(ours, base, Q_THROUGHPUT);
    struct spread latency = sample_ratios(base, ours, Q_MEAN);
    bool shows_latency = sample_shows_latency(ours, base);
    if (c->against.key[0] != '\0') {
        json_object_set_new(object, "against", json_string(c->names[comparison_base(c, i)]));
    }
    json_object_set_new(object, "speedup", number_or_null(speedup.mean));
    json_object_set_new(object, "latency_ratio",
                        number_or_null(shows_latency ? latency.mean : (double)NAN));
    if (sample_quality(ours).judged > 0) {
        struct mcnemar test = sample_mcnemar(ours, base);
        json_object_set_new(object, "mcnemar", mcnemar_json(&test));
    }
    json_object_set_new(object, "warnings", caution_json(&c->warnings[i]));
}

static const char *system_at(const struct comparison *c, size_t i) {
    return c->systems[i / c->n_values];
}

/* The value of --over that makes it this one. */
static void put_over(const struct comparison *c, size_t i, json_t *object) {
    if (c->over.n > 0) {
        json_object_set_new(object, "over",
                            json_pack("{s:s, s:s, s:s}", "key", c->over.key, "value",
                                      c->over.values[i % c->n_values], "name", c->names[i]));
    }
}

static json_t *one_run(const struct comparison *c, size_t i) {
    const struct campaign_point *point = point_at(c, i, 0);
    json_t *object = point->summary != NULL ? json_deep_copy(point->summary)
                                            : json_pack("{s:s, s:s}", "system", system_at(c, i),
                                                        "no_result", point->err.text);
    put_over(c, i, object);
    put_relation(c, i, object);
    if (c->same != NULL) {
        json_object_set(object, "same_requests", c->same[i]);
    }
    return object;
}

static json_t *many_runs(const struct comparison *c, size_t i) {
    static const char *const common[] = {"system", "model", "gpu", "profile", "profile_kind"};
    json_t *object = json_object(), *runs = json_array();
    const json_t *any = sample_any(&c->samples[i]);
    json_object_set_new(object, "system", json_string(system_at(c, i)));
    put_over(c, i, object);
    for (size_t k = 1; k < sizeof common / sizeof common[0]; k++) {
        json_object_set(object, common[k], json_object_get(any, common[k]));
    }
    put_relation(c, i, object);
    json_object_set_new(object, "spread", sample_json(&c->samples[i]));
    json_object_set_new(
        object, "differences",
        sample_differences_json(&c->samples[i], &c->samples[comparison_base(c, i)]));
    for (size_t seed = 0; seed < c->n_seeds; seed++) {
        const struct campaign_point *point = point_at(c, i, seed);
        json_t *run = point->summary != NULL ? json_copy(point->summary)
                                             : json_pack("{s:s}", "no_result", point->err.text);
        if (c->same != NULL) {
            json_object_set(run, "same_requests", c->same[i * c->n_seeds + seed]);
        }
        json_array_append_new(runs, run);
    }
    json_object_set_new(object, "runs", runs);
    return object;
}

json_t *comparison_json(const struct comparison *c) {
    json_t *array = json_array();
    for (size_t i = 0; i < c->n; i++) {
        json_array_append_new(array, c->n_seeds == 1 ? one_run(c, i) : many_runs(c, i));
    }
    return array;
}
