#include "experiments/study/fit.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "experiments/run/cli/cmd.h"
#include "experiments/run/cli/options.h"
#include "experiments/run/compose.h"
#include "sim/base/input/datadir.h"
#include "sim/base/num.h"

enum { MOST_KEYS = 4 };

struct task {
    const struct config *config;
    const char *section;
    const char *system, *gpu, *workload, *key;
    double rate, target, stored;
    double most;     /* the largest value that is tried */
    double first;    /* fitted to the mean latency of this many first requests; 0: to throughput */
    double requests; /* how many; 0: the workload's */
    double output_tokens; /* every output has this length; 0: the workload's */
    const char *quantity; /* ms_per_forward or tpf; NULL: throughput */
    const char *set;      /* KEY=VALUE that the system is run with; NULL: as it is */
};

static bool is_of(const struct task *task, const char *quantity) {
    return task->quantity != NULL && strcmp(task->quantity, quantity) == 0;
}

static int text_of(const struct task *task, const char *key, const char **out, struct err *err) {
    const struct config_entry *entry = config_find(task->config, task->section, key);
    if (entry == NULL) {
        return err_usage(err, "%s: [%s] lacks '%s'", task->config->path, task->section, key);
    }
    *out = entry->value;
    return 0;
}

/* A key that may be absent stays as it was. */
static int number_of(const struct task *task, const char *key, bool may_lack, double *out,
                     struct err *err) {
    const char *text = "";
    if (may_lack && config_find(task->config, task->section, key) == NULL) {
        return 0;
    }
    if (text_of(task, key, &text, err) != 0) {
        return err_status(err);
    }
    return num_f64(text, out) ? 0
                              : err_usage(err, "%s: [%s] %s is not a number: '%s'",
                                          task->config->path, task->section, key, text);
}

static int task_read(struct task *task, struct err *err) {
    const struct config_entry *quantity = config_find(task->config, task->section, "quantity"),
                              *set = config_find(task->config, task->section, "set");
    task->quantity = quantity != NULL ? quantity->value : NULL;
    task->set = set != NULL ? set->value : NULL;
    if (task->set != NULL && strchr(task->set, '=') == NULL) {
        return err_usage(err, "%s: [%s] set is '%s', expected KEY=VALUE", task->config->path,
                         task->section, task->set);
    }
    task->most = 8;
    if (task->quantity != NULL && !is_of(task, "ms_per_forward") && !is_of(task, "tpf")) {
        return err_usage(err, "%s: [%s] quantity is '%s', expected ms_per_forward, tpf or none",
                         task->config->path, task->section, task->quantity);
    }
    bool failed = text_of(task, "system", &task->system, err) != 0 ||
                  text_of(task, "gpu", &task->gpu, err) != 0 ||
                  text_of(task, "workload", &task->workload, err) != 0 ||
                  text_of(task, "key", &task->key, err) != 0 ||
                  number_of(task, "rate", false, &task->rate, err) != 0 ||
                  number_of(task, "target", false, &task->target, err) != 0 ||
                  number_of(task, "most", true, &task->most, err) != 0 ||
                  number_of(task, "latency_of_first", true, &task->first, err) != 0 ||
                  number_of(task, "requests", true, &task->requests, err) != 0 ||
                  number_of(task, "output_tokens", true, &task->output_tokens, err) != 0 ||
                  number_of(task, "value", false, &task->stored, err) != 0;
    return failed ? err_status(err) : 0;
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

/* Every key of the comma list gets the value; then what the section sets besides. */
static int set_keys(const struct task *task, double value, struct setting out[MOST_KEYS + 1],
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
    if (status == 0 && task->set != NULL) {
        struct setting *also = &out[(*n)++];
        const char *is = strchr(task->set, '=');
        *also = (struct setting){.place = "fit"};
        snprintf(also->key, sizeof also->key, "%.*s", (int)(is - task->set), task->set);
        snprintf(also->value, sizeof also->value, "%s", is + 1);
    }
    return status;
}

/* The quantity that is fitted. */
static int reach(const struct task *task, double value, double *out, struct err *err) {
    struct setting settings[MOST_KEYS + 1];
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
    json_t *summary = NULL;
    if (compose_summary(&request, &summary, err) != 0) {
        return err_status(err);
    }
    double tpf = cmd_number(summary, "tpf", NULL);
    *out = is_of(task, "ms_per_forward")
               ? 1000 * tpf / cmd_number(summary, "throughput_tok_s", NULL)
               : cmd_number(summary, is_of(task, "tpf") ? "tpf_answer" : "throughput_answer_tok_s",
                            NULL);
    json_decref(summary);
    return 0;
}

/* "-" where a run says nothing: it finished no request. */
static const char *given(double value, char text[32]) {
    snprintf(text, 32, isfinite(value) ? "%.4g" : "-", value);
    return text;
}

static int fit_one(const struct task *task, struct fit *fit, struct err *err) {
    double low = 0, high = task->most, at_low = 0, at_high = 0;
    int status = reach(task, low, &at_low, err);
    if (status == 0) {
        status = reach(task, high, &at_high, err);
    }
    /* Throughput and tokens fall with the constant, times grow. */
    double sign = task->first > 0 || is_of(task, "ms_per_forward") ? -1 : 1;
    const bool is_between =
        sign * task->target <= sign * at_low && sign * task->target >= sign * at_high;
    if (status == 0 && !is_between) {
        char low_text[32], high_text[32];
        status =
            err_world(err, "[%s] cannot reach its target of %g: %s from 0 to %g gives %s to %s",
                      task->section, task->target, task->key, task->most, given(at_low, low_text),
                      given(at_high, high_text));
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

/* What has no system was read off measured steps: nothing is varied. */
static int fit_section(struct task *task, struct fit *fit, struct err *err) {
    *fit = (struct fit){.name = task->section};
    if (text_of(task, "fitted_to", &fit->fitted_to, err) != 0) {
        return err_status(err);
    }
    if (config_find(task->config, task->section, "system") == NULL) {
        return text_of(task, "measured", &fit->measured, err) != 0 ||
                       number_of(task, "value", false, &fit->stored, err) != 0
                   ? err_status(err)
                   : 0;
    }
    if (task_read(task, err) != 0) {
        return err_status(err);
    }
    fit->target = task->target;
    fit->stored = task->stored;
    return fit_one(task, fit, err);
}

int fit_all(const struct config *calibrated, struct fit *out, size_t most, size_t *n,
            struct err *err) {
    *n = 0;
    const struct config_entry *entry = NULL;
    while (*n < most && (entry = config_next(calibrated, NULL, "value", entry)) != NULL) {
        struct task task = {.config = calibrated, .section = entry->section};
        if (fit_section(&task, &out[(*n)++], err) != 0) {
            return err_status(err);
        }
    }
    return 0;
}

struct table *fit_table(const struct fit *fits, size_t n) {
    struct table *table = table_open("constant|stored|stored gives|fitted|fitted gives|fitted to");
    for (size_t i = 0; i < n; i++) {
        const struct fit *fit = &fits[i];
        if (fit->measured != NULL) {
            char text[256];
            snprintf(text, sizeof text, "%s (%s)", fit->fitted_to, fit->measured);
            table_add(table, "s %.6g - s - s", fit->name, fit->stored, "measured", text);
        } else {
            table_add(table, "s %.7g %.2f %.7g %.2f s", fit->name, fit->stored, fit->stored_result,
                      fit->fitted, fit->fitted_result, fit->fitted_to);
        }
    }
    return table;
}

/* ---- an INI file with other numbers ---- */

static const struct fitted_number *number_at(const char *section, const char *line,
                                             const struct fitted_number *numbers, size_t n) {
    size_t length = strcspn(line, " =");
    for (size_t i = 0; i < n; i++) {
        if (strcmp(numbers[i].section, section) == 0 && strlen(numbers[i].key) == length &&
            strncmp(numbers[i].key, line, length) == 0) {
            return &numbers[i];
        }
    }
    return NULL;
}

int fit_rewrite(const char *shipped, const struct fitted_number *numbers, size_t n, FILE *out,
                struct err *err) {
    FILE *in = fopen(shipped, "r");
    char line[1024], section[64] = "";
    size_t n_found = 0;
    if (in == NULL) {
        return err_world(err, "cannot read '%s': %s", shipped, strerror(errno));
    }
    while (fgets(line, sizeof line, in) != NULL) {
        if (line[0] == '[') {
            snprintf(section, sizeof section, "%.*s", (int)strcspn(line + 1, "]"), line + 1);
        }
        const struct fitted_number *number = number_at(section, line, numbers, n);
        const char *last = strrchr(line, ' ');
        if (number != NULL && last != NULL) {
            fprintf(out, "%.*s %.4f\n", (int)(last - line), line, number->value);
            n_found++;
        } else {
            fputs(line, out);
        }
    }
    fclose(in);
    return n_found == n ? 0
                        : err_world(err, "'%s' has lines for %zu of %zu fitted numbers", shipped,
                                    n_found, n);
}
