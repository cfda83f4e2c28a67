#include "experiments/study/jobs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "analysis/field.h"
#include "sim/base/input/datadir.h"
#include "sim/base/names.h"
#include "sim/base/num.h"

const char *job_text(const json_t *args, const char *key) {
    const char *text = json_string_value(json_object_get(args, key));
    return text != NULL && text[0] != '\0' ? text : NULL;
}

int job_number(const json_t *args, const char *key, double min, double max, double *out,
               struct err *err) {
    const char *text = job_text(args, key);
    if (text != NULL && (!num_f64(text, out) || *out < min || *out > max)) {
        return err_usage(err, "%s: '%s' is not a number from %g to %g", key, text, min, max);
    }
    return 0;
}

int job_whole(const json_t *args, const char *key, uint64_t max, uint64_t *out, struct err *err) {
    const char *text = job_text(args, key);
    if (text != NULL && !num_u64(text, max, out)) {
        return err_usage(err, "%s: '%s' is not a whole number of at most %llu", key, text,
                         (unsigned long long)max);
    }
    return 0;
}

int job_flag(const json_t *args, const char *key, bool *out, struct err *err) {
    const char *text = job_text(args, key);
    static const char *const words[] = {"off", "on", NULL};
    int at = text != NULL ? name_find(words, text) : *out;
    *out = at == 1;
    return at >= 0 ? 0 : err_usage(err, "%s: '%s' is neither on nor off", key, text);
}

json_t *job_cell(const char *text) {
    return field_value(text);
}

void job_put(json_t *row, const char *key, double value) {
    json_object_set_new(row, key, isfinite(value) ? json_real(value) : json_null());
}

const char *job_path(char *path, size_t size, const char *name) {
    if (access(name, R_OK) == 0 || name[0] == '/') {
        snprintf(path, size, "%s", name);
        return path;
    }
    data_path(path, size, name);
    if (access(path, F_OK) != 0) { /* what is missing is missing where it was said to be */
        snprintf(path, size, "%s", name);
    }
    return path;
}

const char *job_setting(const char *key) {
    return name_behind(key, "set ");
}

int job_settings(const json_t *args, struct setting out[JOB_MOST_SETTINGS], uint32_t *n,
                 struct err *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)args, key, value) {
        const char *text = job_text(args, key);
        const char *name = job_setting(key);
        if (name == NULL || text == NULL) {
            continue;
        }
        if (*n == JOB_MOST_SETTINGS) {
            return err_usage(err, "a run has at most %d settings", JOB_MOST_SETTINGS);
        }
        struct setting *setting = &out[(*n)++];
        snprintf(setting->key, sizeof setting->key, "%s", name);
        snprintf(setting->value, sizeof setting->value, "%s", text);
        snprintf(setting->place, sizeof setting->place, "set %s of the study", name);
    }
    return 0;
}
