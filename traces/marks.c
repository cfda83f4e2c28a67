#include "traces/marks.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/rng.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

const char *const mark_words[] = {"tenant", "priority", "deadline", "predicted", NULL};

static uint32_t below(double x, uint32_t n) {
    return x < n ? (uint32_t)x : n - 1;
}

/* ---- whose it is ---- */

struct tenants {
    uint32_t count;
    double exponent;
};

static const struct param uniform_tenant_params[] = {
    PARAM("count", PARAM_U32, struct tenants, count, "1", "2", 1, 1000,
          "tenants, from 0 on, each as often"),
};
static const struct param zipf_tenant_params[] = {
    PARAM("count", PARAM_U32, struct tenants, count, "1", "10", 1, 1000, "tenants, from 0 on"),
    PARAM("exponent", PARAM_F64, struct tenants, exponent, "1", "1", 0, 10,
          "the n-th sends as many as n to minus this"),
};

static void uniform_tenant(const void *state, double u, struct arrival *request) {
    const struct tenants *tenants = state;
    request->tenant = below(u * tenants->count, tenants->count);
}

static void zipf_tenant(const void *state, double u, struct arrival *request) {
    const struct tenants *tenants = state;
    double sum = 0, passed = 0;
    for (uint32_t i = 0; i < tenants->count; i++) {
        sum += pow(i + 1, -tenants->exponent);
    }
    request->tenant = tenants->count - 1;
    for (uint32_t i = 0; i < tenants->count; i++) {
        passed += pow(i + 1, -tenants->exponent);
        if (u * sum < passed) {
            request->tenant = i;
            return;
        }
    }
}

/* ---- how urgent ---- */

struct priorities {
    uint32_t value, min, max;
    double share;
};

static const struct param fixed_priority_params[] = {
    PARAM("value", PARAM_U32, struct priorities, value, "1", "0", 0, UINT32_MAX,
          "priority of every request"),
};
static const struct param uniform_priority_params[] = {
    PARAM("min", PARAM_U32, struct priorities, min, "1", "0", 0, UINT32_MAX, "the least urgent"),
    PARAM("max", PARAM_U32, struct priorities, max, "1", "1", 0, UINT32_MAX, "the most urgent"),
};
static const struct param geometric_priority_params[] = {
    PARAM("share", PARAM_F64, struct priorities, share, "1", "0.2", 0, 0.999,
          "share of the requests of each priority and above that are above it"),
};

static int check_priorities(const void *state, const char *place, struct err *err) {
    const struct priorities *priorities = state;
    return priorities->min <= priorities->max
               ? 0
               : err_usage(err, "%s: priorities from %u to %u: expected min up to max", place,
                           priorities->min, priorities->max);
}

static void fixed_priority(const void *state, double u, struct arrival *request) {
    (void)u;
    request->priority = ((const struct priorities *)state)->value;
}

static void uniform_priority(const void *state, double u, struct arrival *request) {
    const struct priorities *priorities = state;
    const double n = (double)priorities->max - priorities->min + 1;
    request->priority = priorities->min + (uint32_t)fmin(u * n, n - 1);
}

static void geometric_priority(const void *state, double u, struct arrival *request) {
    const double share = ((const struct priorities *)state)->share;
    request->priority = share > 0 ? (uint32_t)fmin(log(u) / log(share), 1000) : 0;
}

/* ---- when it should be finished ---- */

struct deadlines {
    int64_t time_ns, min_ns, max_ns, mean_ns, each_ns;
    double cv;
};

#define TIME(name, field, initial, doc)                                                            \
    PARAM(name, PARAM_I64, struct deadlines, field, "ns", initial, 1, 1e18, doc)

static const struct param fixed_deadline_params[] = {
    TIME("time", time_ns, "60s", "time from arrival to deadline"),
};
static const struct param uniform_deadline_params[] = {
    TIME("min", min_ns, "10s", "shortest time from arrival to deadline"),
    TIME("max", max_ns, "60s", "longest time from arrival to deadline"),
};
static const struct param lognormal_deadline_params[] = {
    TIME("mean", mean_ns, "60s", "mean time from arrival to deadline"),
    PARAM("cv", PARAM_F64, struct deadlines, cv, "1", "0.5", 0.001, 10,
          "standard deviation over mean"),
};
static const struct param length_deadline_params[] = {
    TIME("time", time_ns, "5s", "time from arrival to deadline, in addition to its tokens'"),
    TIME("each", each_ns, "100ms", "time for each token of its output"),
};

static int check_deadlines(const void *state, const char *place, struct err *err) {
    const struct deadlines *deadlines = state;
    return deadlines->min_ns <= deadlines->max_ns
               ? 0
               : err_usage(err, "%s: deadlines from %g to %g s: expected min up to max", place,
                           (double)deadlines->min_ns * 1e-9, (double)deadlines->max_ns * 1e-9);
}

static void set_due(struct arrival *request, double ns) {
    request->due_ns = (int64_t)fmin(fmax(ns, 1), 1e18);
}

static void fixed_deadline(const void *state, double u, struct arrival *request) {
    (void)u;
    request->due_ns = ((const struct deadlines *)state)->time_ns;
}

static void uniform_deadline(const void *state, double u, struct arrival *request) {
    const struct deadlines *deadlines = state;
    set_due(request,
            (double)deadlines->min_ns + u * (double)(deadlines->max_ns - deadlines->min_ns));
}

/* The moments of a lognormal: mean exp(mu + sigma^2 / 2), cv^2 = exp(sigma^2) - 1. */
static void lognormal_deadline(const void *state, double u, struct arrival *request) {
    const struct deadlines *deadlines = state;
    const double sigma2 = log1p(deadlines->cv * deadlines->cv);
    set_due(request, (double)deadlines->mean_ns *
                         exp(sqrt(sigma2) * gsl_cdf_ugaussian_Pinv(u) - sigma2 / 2));
}

static void length_deadline(const void *state, double u, struct arrival *request) {
    const struct deadlines *deadlines = state;
    (void)u;
    set_due(request,
            (double)deadlines->time_ns + (double)deadlines->each_ns * request->output_tokens);
}

/* ---- what a predictor says of its answer ---- */

struct predictor {
    double error;
};

static const struct param lognormal_predicted_params[] = {
    PARAM("error", PARAM_F64, struct predictor, error, "1", "0.5", 0, 5,
          "standard deviation of the logarithm of predicted over true length"),
};

static uint32_t truth(const struct arrival *request) {
    return request->answer_tokens > 0 ? request->answer_tokens : request->output_tokens;
}

static void exact_prediction(const void *state, double u, struct arrival *request) {
    (void)state, (void)u;
    request->predicted_tokens = truth(request);
}

static void lognormal_prediction(const void *state, double u, struct arrival *request) {
    const struct predictor *predictor = state;
    const double tokens = truth(request) * exp(predictor->error * gsl_cdf_ugaussian_Pinv(u));
    request->predicted_tokens = (uint32_t)fmin(fmax(floor(tokens + 0.5), 1), UINT32_MAX);
}

static void no_prediction(const void *state, double u, struct arrival *request) {
    (void)state, (void)u;
    request->predicted_tokens = 0;
}

/* ---- the table ---- */

#define MODEL(of, title, text, state, function)                                                    \
    .mark = (of), .name = (title), .doc = (text), .state_bytes = sizeof(struct state),             \
    .draw = (function)
#define WITH(table) .params = (table), .n_params = COUNT(table)

static const struct mark_model models[] = {
    {MODEL(MARK_TENANT, "uniform", "every tenant sends as many", tenants, uniform_tenant),
     WITH(uniform_tenant_params), .draws = true},
    {MODEL(MARK_TENANT, "zipf", "some tenants send many, most few", tenants, zipf_tenant),
     WITH(zipf_tenant_params), .draws = true},
    {MODEL(MARK_PRIORITY, "fixed", "all are as urgent", priorities, fixed_priority),
     WITH(fixed_priority_params)},
    {MODEL(MARK_PRIORITY, "uniform", "every priority of a range as often", priorities,
           uniform_priority),
     WITH(uniform_priority_params), .check = check_priorities, .draws = true},
    {MODEL(MARK_PRIORITY, "geometric", "the more urgent, the fewer", priorities,
           geometric_priority),
     WITH(geometric_priority_params), .draws = true},
    {MODEL(MARK_DEADLINE, "fixed", "the same time for all", deadlines, fixed_deadline),
     WITH(fixed_deadline_params)},
    {MODEL(MARK_DEADLINE, "uniform", "every time of a range alike", deadlines, uniform_deadline),
     WITH(uniform_deadline_params), .check = check_deadlines, .draws = true},
    {MODEL(MARK_DEADLINE, "lognormal", "short for many, long for some", deadlines,
           lognormal_deadline),
     WITH(lognormal_deadline_params), .draws = true},
    {MODEL(MARK_DEADLINE, "length", "the more output, the later", deadlines, length_deadline),
     WITH(length_deadline_params)},
    {MODEL(MARK_PREDICTED, "exact", "the length of the answer, or of the output where it has none",
           predictor, exact_prediction)},
    {MODEL(MARK_PREDICTED, "lognormal", "that times a lognormal error of median 1", predictor,
           lognormal_prediction),
     WITH(lognormal_predicted_params), .draws = true},
    {MODEL(MARK_PREDICTED, "none", "no prediction, whatever the trace has", predictor,
           no_prediction)},
};

const struct mark_model *mark_model_at(size_t i) {
    return i < COUNT(models) ? &models[i] : NULL;
}

/* ---- those in force ---- */

int marks_find(const char *key) {
    for (int i = 0; i < MARKS; i++) {
        const char *rest = name_behind(key, mark_words[i]);
        if (rest != NULL && (*rest == '.' || *rest == '\0')) {
            return i;
        }
    }
    return -1;
}

int marks_open(struct marks *marks, enum mark mark, const char *word, const char *place,
               struct err *err) {
    const char *names[COUNT(models) + 1] = {NULL};
    size_t n = 0;
    for (size_t i = 0; i < COUNT(models); i++) {
        if (models[i].mark == mark && strcmp(models[i].name, word) == 0) {
            marks->model[mark] = &models[i];
            marks->state[mark] = mem_zeroed(1, models[i].state_bytes);
            param_defaults(models[i].params, models[i].n_params, marks->state[mark]);
            return 0;
        }
        if (models[i].mark == mark) {
            names[n++] = models[i].name;
        }
    }
    char list[128] = "", hint[NAME_HINT_CHARS];
    for (size_t i = 0; i < n; i++) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s",
                 i == 0      ? ""
                 : i + 1 < n ? ", "
                             : " or ",
                 names[i]);
    }
    return err_unknown(err, "%s: %s = '%s', expected %s%s", place, mark_words[mark], word, list,
                       name_hint(word, names, hint));
}

int marks_set(struct marks *marks, enum mark mark, const char *place, const char *name,
              const char *text, struct err *err) {
    const struct mark_model *model = marks->model[mark];
    char owner[48];
    if (model == NULL) {
        return err_usage(err, "%s: %s.%s needs a model, %s = ..., before its parameters", place,
                         mark_words[mark], name, mark_words[mark]);
    }
    snprintf(owner, sizeof owner, "%s = %s", mark_words[mark], model->name);
    return param_set(model->params, model->n_params, marks->state[mark], owner, place, name, text,
                     err);
}

void marks_close(struct marks *marks) {
    for (int i = 0; i < MARKS; i++) {
        free(marks->state[i]);
    }
}

/* The parameter that "deadline.mean" names, or NULL. */
static const struct param *param_of(const struct marks *marks, const char *key, int mark) {
    const char *name = strchr(key, '.');
    const struct mark_model *model = mark >= 0 ? marks->model[mark] : NULL;
    return name != NULL && model != NULL ? param_find(model->params, model->n_params, name + 1)
                                         : NULL;
}

const char *marks_text(const struct marks *marks, const char *key, char *text, size_t size) {
    const int mark = marks_find(key);
    if (mark < 0 || marks->model[mark] == NULL) {
        return NULL;
    }
    const struct param *param = param_of(marks, key, mark);
    return param != NULL              ? param_text(param, marks->state[mark], text, size)
           : strchr(key, '.') == NULL ? marks->model[mark]->name
                                      : NULL;
}

const char *marks_doc(const struct marks *marks, const char *key) {
    const struct param *param = param_of(marks, key, marks_find(key));
    return param != NULL ? param->doc : NULL;
}

int marks_start(struct marks *marks, uint64_t seed, const char *place, struct err *err) {
    int status = 0;
    for (int i = 0; status == 0 && i < MARKS; i++) {
        const struct mark_model *model = marks->model[i];
        char stream[32];
        snprintf(stream, sizeof stream, "%s marks", mark_words[i]);
        marks->seed[i] = rng_stream(seed, stream).s[0];
        status =
            model != NULL && model->check != NULL ? model->check(marks->state[i], place, err) : 0;
    }
    return status;
}

bool marks_draw(const struct marks *marks) {
    bool draws = false;
    for (int i = 0; i < MARKS; i++) {
        draws = draws || (marks->model[i] != NULL && marks->model[i]->draws);
    }
    return draws;
}

/* ---- the source ---- */

static enum source_reply give_marked(void *state, struct arrival *out, struct err *err) {
    const struct marks *marks = state;
    const enum source_reply reply = marks->inner.next(marks->inner.state, out, err);
    for (int i = 0; reply == SOURCE_ROW && i < MARKS; i++) {
        if (marks->model[i] != NULL) {
            marks->model[i]->draw(marks->state[i], rng_keyed(marks->seed[i], out->id, 0, 0), out);
        }
    }
    return reply;
}

static void pass_completion(void *state, uint64_t id, int64_t now_ns) {
    const struct marks *marks = state;
    marks->inner.completed(marks->inner.state, id, now_ns);
}

static void pass_back(void *state, const struct arrival *row) {
    const struct marks *marks = state;
    marks->inner.back(marks->inner.state, row);
}

struct arrival_source marks_source(struct marks *marks, struct arrival_source inner) {
    bool marks_any = false;
    for (int i = 0; i < MARKS; i++) {
        marks_any = marks_any || marks->model[i] != NULL;
    }
    marks->inner = inner;
    return marks_any ? (struct arrival_source){.state = marks,
                                               .next = give_marked,
                                               .completed =
                                                   inner.completed != NULL ? pass_completion : NULL,
                                               .back = inner.back != NULL ? pass_back : NULL}
                     : inner;
}
