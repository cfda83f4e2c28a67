#include "experiments/run/sweep/over.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/names.h"
#include "sim/base/num.h"

static int add_value(const char *word, size_t length, size_t most, struct over *over,
                     struct err *err) {
    if (length == 0 || length >= OVER_VALUE_CHARS || over->n == most) {
        return err_usage(err,
                         "--over: expected KEY=A,B,... with at most %zu values of 1 to %d "
                         "characters",
                         most, OVER_VALUE_CHARS - 1);
    }
    char *value = over->values[over->n];
    snprintf(value, OVER_VALUE_CHARS, "%.*s", (int)length, word);
    for (size_t i = 0; i < over->n; i++) {
        if (strcmp(over->values[i], value) == 0) {
            return err_usage(err, "--over: '%s' is there twice", value);
        }
    }
    over->n++;
    return 0;
}

int over_read(const char *text, size_t most, struct over *out, struct err *err) {
    const char *equals = strchr(text, '='), *word;
    size_t length;
    int status = 0;
    *out = (struct over){.n = 0};
    if (equals == NULL || equals == text || (size_t)(equals - text) >= sizeof out->key) {
        return err_usage(err, "--over: '%s' is not KEY=A,B,...", text);
    }
    snprintf(out->key, sizeof out->key, "%.*s", (int)(equals - text), text);
    if (strcmp(out->key, "system") == 0) {
        return err_usage(err, "--over: systems are listed by --systems, or in a sweep's file");
    }
    out->values = mem_zeroed(most, sizeof *out->values);
    for (const char *rest = equals + 1; status == 0 && name_next(&rest, ",", &word, &length);) {
        status = add_value(word, length, most, out, err);
    }
    return status;
}

void over_fini(struct over *over) {
    free(over->values);
    over->values = NULL;
}

int over_refuse_traffic(const char *key, struct err *err) {
    static const char *const keys[] = {"workload",     "rate",          "requests", "seed",
                                       "input_tokens", "output_tokens", NULL};
    return name_find(keys, key) < 0
               ? 0
               : err_usage(err,
                           "--over: here '%s' is one for all that is compared; `unmask sweep` has "
                           "several",
                           key);
}

int over_ask(const char *key, const char *value, const char *place, struct asked *asked,
             struct err *err) {
    if (strcmp(key, "gpu") == 0) {
        asked->request.gpu = value;
    } else if (strcmp(key, "model") == 0) {
        asked->request.model = value;
    } else {
        return asked_set(asked, key, value, place, err);
    }
    return 0;
}

/* ---- names ---- */

/* A plug-in's own name; NULL: it is none, or has not been run. */
static const char *own_name(const char *key, const json_t *run) {
    const json_t *policy = json_object_get(json_object_get(run, "policies"), key);
    return json_is_string(json_object_get(policy, "file"))
               ? json_string_value(json_object_get(policy, "name"))
               : NULL;
}

void over_names(const char *key, char (*values)[OVER_VALUE_CHARS], const json_t *const *runs,
                size_t n, char (*names)[OVER_NAME_CHARS]) {
    for (size_t i = 0; i < n; i++) {
        const char *own = own_name(key, runs[i]);
        bool is_shared = false;
        for (size_t k = 0; own != NULL && k < n; k++) {
            const char *other = own_name(key, runs[k]);
            is_shared =
                is_shared || (k != i && strcmp(other != NULL ? other : values[k], own) == 0);
        }
        if (own == NULL) {
            snprintf(names[i], OVER_NAME_CHARS, "%s", values[i]);
        } else {
            snprintf(names[i], OVER_NAME_CHARS, "%.100s%s%.120s%s", own, is_shared ? " (" : "",
                     is_shared ? values[i] : "", is_shared ? ")" : "");
        }
    }
}

bool over_says_key(const char *key) {
    static const char *const plain[] = {"system", "model",   "gpu",    "scheduler",
                                        "cache",  "decoder", "router", NULL};
    return name_find(plain, key) < 0;
}

/* ---- who is compared with ---- */

/* Without the blanks around it. */
static char *trimmed(char *text) {
    text += strspn(text, " ");
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == ' ') {
        text[--n] = '\0';
    }
    return text;
}

int against_read(const char *text, struct against *out, struct err *err) {
    *out = (struct against){.key = ""};
    if (text == NULL) {
        return 0;
    }
    char copy[sizeof out->key + sizeof out->value] = "";
    char *equals = NULL;
    if (strlen(text) < sizeof copy) {
        snprintf(copy, sizeof copy, "%s", text);
        equals = strchr(copy, '=');
    }
    if (equals == NULL) {
        return err_usage(err,
                         "--against: '%.200s' is not KEY=VALUE, such as scheduler=look-ahead or "
                         "system=%.200s",
                         text, text);
    }
    *equals = '\0';
    const char *key = trimmed(copy), *value = trimmed(equals + 1);
    if (key[0] == '\0' || value[0] == '\0' || strlen(key) >= sizeof out->key ||
        strlen(value) >= sizeof out->value) {
        return err_usage(err, "--against: '%s' is not KEY=VALUE, such as scheduler=look-ahead",
                         text);
    }
    if (strcmp(key, "seed") == 0) {
        return err_usage(err, "--against: runs of the same seed are compared, so that seed is no "
                              "key to compare by");
    }
    snprintf(out->key, sizeof out->key, "%s", key);
    snprintf(out->value, sizeof out->value, "%s", value);
    return 0;
}

/* Whether both are files of one name, or one is the other's name without its ending. */
static bool is_file_of(const char *value, const char *asked) {
    const char *slash = strrchr(value, '/'), *its = strrchr(asked, '/');
    const char *name = slash != NULL ? slash + 1 : value;
    its = its != NULL ? its + 1 : asked;
    return slash != NULL && (strcmp(name, its) == 0 || (strlen(its) == strcspn(name, ".") &&
                                                        strncmp(name, its, strlen(its)) == 0));
}

static bool is_same(const char *value, const char *asked) {
    double a, b;
    return strcmp(value, asked) == 0 || (num_f64(value, &a) && num_f64(asked, &b) && a == b);
}

static size_t count_of(const struct against *against, const char *values, size_t stride, size_t n,
                       bool (*is)(const char *value, const char *asked), size_t *at) {
    size_t n_found = 0;
    for (size_t i = 0; i < n; i++) {
        if (is(values + i * stride, against->value)) {
            *at = i;
            n_found++;
        }
    }
    return n_found;
}

int against_find(const struct against *against, const char *values, size_t stride, size_t n,
                 size_t *at, struct err *err) {
    size_t n_found = count_of(against, values, stride, n, is_same, at);
    n_found = n_found > 0 ? n_found : count_of(against, values, stride, n, is_file_of, at);
    if (n_found == 1) {
        return 0;
    }
    char list[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < n && used < sizeof list; i++) {
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "",
                                 values + i * stride);
    }
    return err_usage(err, "--against: %s run has %s = %s; there is %s",
                     n_found == 0 ? "no" : "more than one", against->key, against->value, list);
}

int against_bad_key(const struct against *against, const char *const *keys, size_t n,
                    struct err *err) {
    char list[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < n && used < sizeof list; i++) {
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", keys[i]);
    }
    return err_usage(err, "--against: no two runs differ in '%s'; they differ in %s", against->key,
                     n > 0 ? list : "nothing");
}

const char *against_name(const struct against *against, const char *name,
                         char text[AGAINST_NAME_CHARS]) {
    const bool says_key = over_says_key(against->key);
    snprintf(text, AGAINST_NAME_CHARS, "%.100s%s%.300s", says_key ? against->key : "",
             says_key ? "=" : "", name);
    return text;
}
