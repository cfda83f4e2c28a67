#include "experiments/study/fit.h"

#include <string.h>

#include "experiments/cli/words.h"
#include "experiments/study/point.h"
#include "sim/base/datadir.h"
#include "sim/base/num.h"

enum { MOST_KEYS = 4 };

struct task {
    const struct config *config;
    const char *section;
    const char *system, *gpu, *workload, *key;
    double rate, target, stored;
    double most;     /* the largest value that is tried */
    double first;    /* fitted to the mean latency of so many first requests; 0: to throughput */
    double requests; /* how many; 0: the workload's */
    double output_tokens; /* every output has this length; 0: the workload's */
    const char *quantity; /* ms_per_forward or tpf; NULL: throughput */
};

static int text_of(struct task *task, const char *key, const char **out, struct err *err) {
    const struct config_entry *entry = config_find(task->config, task->section, key);
    if (entry == NULL) {
        return err_usage(err, "%s: [%s] lacks '%s'", task->config->path, task->section, key);
    }
    *out = entry->value;
    return 0;
}

static int number_of(struct task *task, const char *key, double *out, struct err *err) {
    const char *text = "";
    int status = text_of(task, key, &text, err);
    if (status == 0 && !num_f64(text, out)) {
        status = err_usage(err, "%s: [%s] %s is not a number: '%s'", task->config->path,
                           task->section, key, text);
    }
    return status;
}

static int task_read(struct task *task, struct err *err) {
    int status = text_of(task, "system", &task->system, err);
    if (status == 0) {
        status = text_of(task, "gpu", &task->gpu, err);
    }
    if (status == 0) {
        status = text_of(task, "workload", &task->workload, err);
    }
    if (status == 0) {
        status = text_of(task, "key", &task->key, err);
    }
    if (status == 0) {
        status = number_of(task, "rate", &task->rate, err);
    }
    if (status == 0) {
        status = number_of(task, "target", &task->target, err);
    }
    task->most = 8;
    if (status == 0 && config_find(task->config, task->section, "most") != NULL) {
        status = number_of(task, "most", &task->most, err);
    }
    if (status == 0 && config_find(task->config, task->section, "latency_of_first") != NULL) {
        status = number_of(task, "latency_of_first", &task->first, err);
    }
    if (status == 0 && config_find(task->config, task->section, "requests") != NULL) {
        status = number_of(task, "requests", &task->requests, err);
    }
    if (status == 0 && config_find(task->config, task->section, "output_tokens") != NULL) {
        status = number_of(task, "output_tokens", &task->output_tokens, err);
    }
    const struct config_entry *quantity = config_find(task->config, task->section, "quantity");
    task->quantity = quantity != NULL ? quantity->value : NULL;
    if (status == 0 && quantity != NULL && strcmp(quantity->value, "ms_per_forward") != 0 &&
        strcmp(quantity->value, "tpf") != 0) {
        status = err_usage(err, "%s: [%s] quantity is '%s', expected ms_per_forward, tpf or none",
                           task->config->path, task->section, quantity->value);
    }
    return status != 0 ? status : number_of(task, "value", &task->stored, err);
}

/* Latencies of the requests that arrive first. */
struct early {
    double n_wanted, n, sum_s;
};

static int add_early(void *state, const struct request_record *record, struct err *err) {
    struct early *early = state;
    (void)err;
    if ((double)record->id < early->n_wanted && record->state == REQUEST_DONE) {
        early->n++;
        early->sum_s += (double)(record->finished_ns - record->arrival_ns) * 1e-9;
    }
    return 0;
}

static int early_latency(const struct task *task, const struct run_request *request, double *out,
                         struct err *err) {
    struct composition *composition = NULL;
    struct early early = {.n_wanted = task->first};
    const struct sink sink = {.state = &early, .request = add_early};
    const struct run_watch watch = {.sinks = &sink, .n_sinks = 1};
    int status = compose_open(request, &composition, err);
    status = status != 0 ? status : compose_run(composition, &watch, err);
    *out = early.n > 0 ? early.sum_s / early.n : 0;
    compose_close(composition);
    return status;
}

static bool is_of(const struct task *task, const char *quantity) {
    return task->quantity != NULL && strcmp(task->quantity, quantity) == 0;
}

/* Every key of the comma list gets the value. */
static int set_keys(const struct task *task, double value, struct setting out[MOST_KEYS],
                    uint32_t *n, struct err *err) {
    struct words keys;
    int status = words_split(task->key, &keys, task->section, err);
    if (status == 0 && keys.n > MOST_KEYS) {
        status = err_usage(err, "[%s] sets more than %d keys", task->section, MOST_KEYS);
    }
    for (size_t i = 0; status == 0 && i < keys.n; i++) {
        out[i] = (struct setting){.place = "fit"};
        snprintf(out[i].key, sizeof out[i].key, "%s", keys.word[i]);
        snprintf(out[i].value, sizeof out[i].value, "%.9g", value);
    }
    *n = status == 0 ? (uint32_t)keys.n : 0;
    return status;
}

/* The quantity that is fitted. */
static int reach(const struct task *task, double value, double *out, struct err *err) {
    struct setting settings[MOST_KEYS];
    uint32_t n_settings = 0;
    int status = set_keys(task, value, settings, &n_settings, err);
    if (status != 0) {
        return status;
    }
    char path[512];
    const char *workload = strchr(task->workload, '/') == NULL
                               ? task->workload
                               : data_path(path, sizeof path, task->workload);
    struct run_request request = {.system = task->system,
                                  .gpu = task->gpu,
                                  .workload = workload,
                                  .options = {.seed = 1,
                                              .requests = (uint64_t)task->requests,
                                              .rate_per_s = task->rate,
                                              .output_tokens = (uint32_t)task->output_tokens},
                                  .settings = settings,
                                  .n_settings = n_settings};
    if (task->first > 0) {
        return early_latency(task, &request, out, err);
    }
    struct point point;
    status = point_run(&request, &point, err);
    *out = is_of(task, "ms_per_forward") ? point.ms_per_forward
           : is_of(task, "tpf")          ? point.tpf
                                         : point.throughput;
    return status;
}

static int fit_one(const struct task *task, struct fit *fit, struct err *err) {
    double low = 0, high = task->most, at_low = 0, at_high = 0;
    int status = reach(task, low, &at_low, err);
    if (status == 0) {
        status = reach(task, high, &at_high, err);
    }
    /* Throughput and tokens fall with the constant, times grow. */
    double sign = task->first > 0 || is_of(task, "ms_per_forward") ? -1 : 1;
    if (status == 0 &&
        (sign * task->target > sign * at_low || sign * task->target < sign * at_high)) {
        status =
            err_world(err, "[%s] cannot reach its target of %g: %s from 0 to %g gives %.4g to %.4g",
                      task->section, task->target, task->key, task->most, at_low, at_high);
    }
    for (int i = 0; status == 0 && i < 30; i++) {
        double middle = (low + high) / 2, reached = 0;
        status = reach(task, middle, &reached, err);
        *(sign * reached > sign * task->target ? &low : &high) = middle;
    }
    fit->fitted = (low + high) / 2;
    if (status == 0) {
        status = reach(task, fit->fitted, &fit->fitted_result, err);
    }
    return status != 0 ? status : reach(task, task->stored, &fit->stored_result, err);
}

/* Read off measured steps: nothing is varied. */
static int take_measured(struct task *task, struct fit *fit, struct err *err) {
    const char *measured = "";
    *fit = (struct fit){.name = task->section};
    int status = text_of(task, "measured", &measured, err);
    status = status == 0 ? number_of(task, "value", &fit->stored, err) : status;
    status = status == 0 ? text_of(task, "fitted_to", &fit->fitted_to, err) : status;
    fit->measured = measured;
    return status;
}

int fit_all(const struct config *calibrated, struct fit *out, size_t most, size_t *n,
            struct err *err) {
    *n = 0;
    for (size_t i = 0; i < calibrated->n_entries && *n < most; i++) {
        const struct config_entry *entry = &calibrated->entries[i];
        if (strcmp(entry->key, "value") != 0) {
            continue;
        }
        struct task task = {.config = calibrated, .section = entry->section};
        struct fit *fit = &out[*n];
        if (config_find(calibrated, entry->section, "system") == NULL) {
            int read = take_measured(&task, fit, err);
            if (read != 0) {
                return read;
            }
            (*n)++;
            continue;
        }
        int status = task_read(&task, err);
        if (status == 0) {
            *fit = (struct fit){.name = task.section, .target = task.target, .stored = task.stored};
            status = text_of(&task, "fitted_to", &fit->fitted_to, err);
        }
        if (status == 0) {
            status = fit_one(&task, fit, err);
        }
        if (status != 0) {
            return status;
        }
        (*n)++;
    }
    return 0;
}

void fit_print(const struct fit *fits, size_t n, FILE *out) {
    fprintf(out, "%-26s %10s %12s %10s %12s  %s\n", "constant", "stored", "gives", "fitted",
            "gives", "fitted to");
    for (size_t i = 0; i < n; i++) {
        if (fits[i].measured != NULL) {
            fprintf(out, "%-26s %10.6g %12s %10s %12s  %s (%s)\n", fits[i].name, fits[i].stored, "",
                    "measured", "", fits[i].fitted_to, fits[i].measured);
            continue;
        }
        fprintf(out, "%-26s %10.7g %12.2f %10.7g %12.2f  %s\n", fits[i].name, fits[i].stored,
                fits[i].stored_result, fits[i].fitted, fits[i].fitted_result, fits[i].fitted_to);
    }
}
