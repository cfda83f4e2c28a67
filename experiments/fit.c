#include "experiments/fit.h"

#include <string.h>

#include "experiments/point.h"
#include "sim/base/num.h"

struct task {
    const struct config *config;
    const char *section;
    const char *system, *gpu, *workload, *key;
    double rate, target, stored;
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
    return status != 0 ? status : number_of(task, "value", &task->stored, err);
}

static int throughput(const struct task *task, double value, double *out, struct err *err) {
    struct setting setting = {.place = "fit"};
    snprintf(setting.key, sizeof setting.key, "%s", task->key);
    snprintf(setting.value, sizeof setting.value, "%.9g", value);
    struct run_request request = {.system = task->system,
                                  .gpu = task->gpu,
                                  .workload = task->workload,
                                  .options = {.seed = 1, .rate_per_s = task->rate},
                                  .settings = &setting,
                                  .n_settings = 1};
    struct point point;
    int status = point_run(&request, &point, err);
    *out = point.throughput;
    return status;
}

static int fit_one(const struct task *task, struct fit *fit, struct err *err) {
    double low = 0, high = 8, at_low, at_high;
    int status = throughput(task, low, &at_low, err);
    if (status == 0) {
        status = throughput(task, high, &at_high, err);
    }
    if (status == 0 && (task->target > at_low || task->target < at_high)) {
        status =
            err_world(err, "[%s] cannot reach its target of %g: %s from 0 to 8 gives %.4g to %.4g",
                      task->section, task->target, task->key, at_low, at_high);
    }
    for (int i = 0; status == 0 && i < 30; i++) {
        double middle = (low + high) / 2, reached;
        status = throughput(task, middle, &reached, err);
        *(reached > task->target ? &low : &high) = middle;
    }
    fit->fitted = (low + high) / 2;
    if (status == 0) {
        status = throughput(task, fit->fitted, &fit->fitted_result, err);
    }
    return status != 0 ? status : throughput(task, task->stored, &fit->stored_result, err);
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
    fprintf(out, "%-22s %10s %12s %10s %12s  %s\n", "constant", "stored", "gives tok/s", "fitted",
            "gives tok/s", "fitted to");
    for (size_t i = 0; i < n; i++) {
        fprintf(out, "%-22s %10.4f %12.2f %10.4f %12.2f  %s\n", fits[i].name, fits[i].stored,
                fits[i].stored_result, fits[i].fitted, fits[i].fitted_result, fits[i].fitted_to);
    }
}
