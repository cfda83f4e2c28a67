#include "experiments/run/cli/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sim/base/condition.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/base/utf8.h"
#include "sim/system/settings.h"

enum { MOST_NAMES = 96 };

static const struct option *find(const struct option *const *groups, const char *name,
                                 size_t length) {
    for (size_t g = 0; groups[g] != NULL; g++) {
        for (const struct option *option = groups[g]; option->name != NULL; option++) {
            if (strlen(option->name) == length && strncmp(option->name, name, length) == 0) {
                return option;
            }
        }
    }
    return NULL;
}

static const char *dashes(const char *name) {
    return name[1] == '\0' ? "-" : "--";
}

/* What vLLM, SGLang and load generators call what is here an option, perhaps with a value. */
static const struct foreign {
    const char *names[6];
    const char *option, *value;
} foreign[] = {
    {{"tp", "tp-size", "tensor-parallel-size"}, "set", "tensor_parallel=N"},
    {{"max-num-seqs", "max-running-requests", "max-batch-size", "batch-size"},
     "set",
     "max_requests=N"},
    {{"num-gpus", "data-parallel-size", "dp"}, "replicas", "N"},
    {{"max-num-batched-tokens", "chunked-prefill-size"}, "set", "max_batched_tokens=N"},
    {{"gpu-memory-utilization", "mem-fraction-static"}, "set", "memory_utilization=SHARE"},
    {{"max-model-len", "context-length"}, "set", "context_tokens=N"},
    {{"enable-prefix-caching"}, "set", "prefix_caching=on"},
    {{"block-size", "page-size"}, "set", "page_tokens=N"},
    {{"quantization", "dtype"}, "set", "storage.weights=TYPE"},
    {{"kv-cache-dtype"}, "set", "storage.cache=TYPE"},
    {{"num-prompts", "num-requests"}, "requests", "N"},
    {{"request-rate", "qps", "rps"}, "rate", "R"},
    {{"burstiness"}, "arrivals", "gamma --set workload.arrivals.cv=CV"},
    {{"max-concurrency", "concurrency"},
     "arrivals",
     "closed-loop --set workload.arrivals.clients=N"},
    {{"dataset", "dataset-name", "dataset-path"}, "workload", "NAME"},
    {{"input-len", "random-input-len", "isl"}, "input-tokens", "N"},
    {{"output-len", "random-output-len", "osl"}, "output-tokens", "N"},
    {{"goodput", "objective"}, "slo", "TERMS"},
    {{"gpu", "gpus"}, "over", "gpu=A,B,..."}, /* of a sweep, whose file has the rest */
    {{"model", "models"}, "over", "model=A,B,..."},
    {{"rate", "rates"}, "over", "rate=A,B,..."},
    {{"scheduler", "schedulers"}, "over", "scheduler=A,B,..."},
    {{"csv"}, "format", "csv"},
    {{"markdown"}, "format", "markdown"},
    {{"latex"}, "format", "latex"},
    {{"threads", "workers"}, "j", "N"},
};

static const struct foreign *find_foreign(const struct option *const *groups, const char *name) {
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        if (name_find(foreign[i].names, name) >= 0 &&
            find(groups, foreign[i].option, strlen(foreign[i].option)) != NULL) {
            return &foreign[i];
        }
    }
    return NULL;
}

static int unknown(const struct option *const *groups, const char *arg, int length,
                   struct err *err) {
    const char *names[MOST_NAMES + 1] = {NULL};
    size_t n = 0;
    for (size_t g = 0; groups[g] != NULL; g++) {
        for (const struct option *option = groups[g]; option->name != NULL; option++) {
            ASSERT(n < MOST_NAMES);
            names[n++] = option->name;
        }
    }
    char name[64];
    const char *bare = arg + strspn(arg, "-");
    snprintf(name, sizeof name, "%.*s", length - (int)(bare - arg), bare);
    char key[sizeof name];
    for (size_t i = 0; i < sizeof key; i++) {
        key[i] = name[i] == '-' ? '_' : name[i];
    }
    if (name_find(names, "set") >= 0 && param_find(system_params, system_n_params, key) != NULL) {
        return err_usage(err, "unknown option '%.*s'; --set %s=VALUE sets that key of the system",
                         length, arg, key);
    }
    const struct foreign *as = find_foreign(groups, name);
    if (as != NULL) {
        return err_usage(err, "unknown option '%.*s'; here it is %s%s %s", length, arg,
                         dashes(as->option), as->option, as->value);
    }
    const char *near = name_nearest(name, names);
    return err_usage(err, "unknown option '%.*s'%s%s%s%s", length, arg,
                     near != NULL ? "; did you mean '" : "", near != NULL ? dashes(near) : "",
                     near != NULL ? near : "", near != NULL ? "'?" : "");
}

static int take(struct options *options, const struct option *option, const char *value,
                struct err *err) {
    if (!option->repeats && options_has(options, option->name)) {
        return err_usage(err, "%s%s is given twice", dashes(option->name), option->name);
    }
    if (options->n_given == OPTIONS_MOST_GIVEN) {
        return err_usage(err, "more than %d options", OPTIONS_MOST_GIVEN);
    }
    options->given[options->n_given++] = (struct given){option, value};
    return 0;
}

/* Earlier spellings, which scripts may use: taken where a command has only the new one. */
static const struct {
    const char *old, *now;
} renamed[] = {{"systems", "systems-file"}, {"trace", "workload"},       {"slo-ttfb", "slo-ttft"},
               {"prompt", "input-tokens"},  {"output", "output-tokens"}, {"o", "out"},
               {"model", "allocator"}};

static const struct option *find_renamed(const struct option *const *groups, const char *name,
                                         size_t length) {
    for (size_t i = 0; i < sizeof renamed / sizeof renamed[0]; i++) {
        const char *now = renamed[i].now;
        if (strlen(renamed[i].old) == length && strncmp(renamed[i].old, name, length) == 0) {
            return find(groups, now, strlen(now));
        }
    }
    return NULL;
}

/* One option at argv[i]; returns how many arguments it took, or 0 with `err` filled. */
static int read_option(const struct option *const *groups, int argc, char *const *argv, int i,
                       struct options *out, struct err *err) {
    const char *arg = argv[i], *value = NULL;
    bool is_short = arg[1] != '-';
    const char *name = is_short ? arg + 1 : arg + 2;
    size_t length = is_short ? 1 : strcspn(name, "=");
    const struct option *option = find(groups, name, length);
    option = option != NULL ? option : find_renamed(groups, name, length);
    if (option == NULL || (!is_short && length == 1)) {
        (void)unknown(groups, arg, (int)(name - arg + (ptrdiff_t)length), err);
        return 0;
    }
    if (name[length] != '\0') {
        value = name + length + (name[length] == '=');
    }
    int taken = 1;
    if (option->value == NULL && value != NULL) {
        (void)err_usage(err, "%s%s takes no value", dashes(option->name), option->name);
        return 0;
    }
    if (option->value != NULL && value == NULL) {
        if (i + 1 == argc) {
            (void)err_usage(err, "%s%s needs a value: %s", dashes(option->name), option->name,
                            option->value);
            return 0;
        }
        value = argv[i + 1];
        taken = 2;
        if (strncmp(value, "--", 2) == 0 &&
            find(groups, value + 2, strcspn(value + 2, "=")) != NULL) {
            (void)err_usage(err, "%s%s needs a value, %s, and '%s' after it is an option",
                            dashes(option->name), option->name, option->value, value);
            return 0;
        }
    }
    return take(out, option, value, err) == 0 ? taken : 0;
}

/* What is typed becomes names in JSON, which is UTF-8, and in INI files, where a line ends a value;
 * only a prompt may have several lines. */
static int check_text(const char *text, bool is_prompt, struct err *err) {
    size_t n = strlen(text);
    for (size_t at = 0, length; at < n; at += length) {
        bool is_valid;
        length = utf8_next(text + at, n - at, &is_valid);
        if (!is_valid || (!is_prompt && utf8_is_control(text + at))) {
            return err_usage(err, "'%s': found %s, expected UTF-8 on one line", text,
                             is_valid ? "a control character" : "what is no UTF-8");
        }
    }
    return 0;
}

/* Most often a list that was written with blanks. */
static int unexpected(const struct options *options, const char *before, const char *word,
                      struct err *err) {
    const struct given *given = options->n_given > 0 ? &options->given[options->n_given - 1] : NULL;
    if (given != NULL && given->value == before && strchr(given->option->value, ',') != NULL) {
        return err_usage(err, "unexpected word '%s': --%s takes one list, %s", word,
                         given->option->name, given->option->value);
    }
    return err_usage(err, "unexpected word '%s'", word);
}

int options_read(const struct option *const *groups, int argc, char *const *argv, size_t max_words,
                 struct options *out, struct err *err) {
    ASSERT(max_words <= OPTIONS_MOST_WORDS);
    *out = (struct options){0};
    bool ended = false;
    for (int i = 0; i < argc; i++) {
        bool is_prompt = strncmp(argv[i], "--text=", strlen("--text=")) == 0 ||
                         (i > 0 && strcmp(argv[i - 1], "--text") == 0);
        if (check_text(argv[i], is_prompt, err) != 0) {
            return err_status(err);
        }
    }
    for (int i = 0; i < argc;) {
        const char *arg = argv[i];
        if (!ended && strcmp(arg, "--") == 0) {
            ended = true;
            i++;
        } else if (!ended && arg[0] == '-' && arg[1] != '\0') {
            int taken = read_option(groups, argc, argv, i, out, err);
            if (taken == 0) {
                return (int)err->kind;
            }
            i += taken;
        } else if (out->n_words == max_words) {
            return unexpected(out, i > 0 ? argv[i - 1] : "", arg, err);
        } else {
            out->words[out->n_words++] = arg;
            i++;
        }
    }
    return 0;
}

static const struct given *last(const struct options *options, const char *name) {
    const struct given *found = NULL;
    for (size_t i = 0; i < options->n_given; i++) {
        if (strcmp(options->given[i].option->name, name) == 0) {
            found = &options->given[i];
        }
    }
    return found;
}

const char *options_text(const struct options *options, const char *name) {
    const struct given *given = last(options, name);
    return given != NULL ? given->value : NULL;
}

bool options_has(const struct options *options, const char *name) {
    return last(options, name) != NULL;
}

size_t options_values(const struct options *options, const char *name, const char **out) {
    size_t n = 0;
    for (size_t i = 0; i < options->n_given; i++) {
        if (strcmp(options->given[i].option->name, name) == 0) {
            out[n++] = options->given[i].value;
        }
    }
    return n;
}

int options_whole(const struct options *options, const char *name, uint64_t min, uint64_t max,
                  uint64_t *out, struct err *err) {
    const char *text = options_text(options, name);
    if (text == NULL) {
        return 0;
    }
    if (!num_u64(text, max, out) || *out < min) {
        return err_usage(err, "%s%s: '%s' is not a whole number from %" PRIu64 " to %" PRIu64,
                         dashes(name), name, text, min, max);
    }
    return 0;
}

int options_positive(const struct options *options, const char *name, double *out,
                     struct err *err) {
    const char *text = options_text(options, name);
    if (text != NULL && (!num_f64(text, out) || *out <= 0)) {
        return err_usage(err, "--%s: '%s' is not a number above 0", name, text);
    }
    return 0;
}

int options_time(const struct options *options, const char *name, int64_t *out, struct err *err) {
    const char *text = options_text(options, name);
    double ns = 0;
    if (text == NULL) {
        return 0;
    }
    double bare;
    if (num_f64(text, &bare) || !num_with_unit(text, "ns", &ns) || ns < 1 || ns > 9e18) {
        return err_usage(err, "--%s: '%s' is not a time such as 2.5s or 300ms", name, text);
    }
    *out = (int64_t)ns;
    return 0;
}

static const char *option_fact(const void *state, const char *name, char text[FACT_CHARS]) {
    const char *bare = name + strspn(name, "-");
    const struct given *given = last(state, bare);
    (void)text;
    return given == NULL ? "none" : given->value != NULL ? given->value : "on";
}

int options_check_read(const struct options *options, struct err *err) {
    const struct facts facts = {option_fact, options};
    for (size_t i = 0; i < options->n_given; i++) {
        const struct option *option = options->given[i].option;
        char text[CONDITION_CHARS];
        const char *condition = condition_of(option->doc, text);
        if (condition != NULL && condition[0] == '-' && !condition_holds(condition, &facts)) {
            return err_usage(err, "%s%s does nothing here: it is read where %s",
                             dashes(option->name), option->name, condition);
        }
    }
    return 0;
}

void options_help(const struct option *const *groups, FILE *out) {
    for (size_t g = 0; groups[g] != NULL; g++) {
        for (const struct option *option = groups[g]; option->name != NULL; option++) {
            char head[64];
            snprintf(head, sizeof head, "%s%s%s%s", dashes(option->name), option->name,
                     option->value != NULL ? " " : "", option->value != NULL ? option->value : "");
            fprintf(out, "  %-24s  %s\n", head, option->doc);
        }
    }
}

int words_split(const char *text, struct words *out, const char *place, struct err *err) {
    const char *word;
    size_t length;
    out->n = 0;
    for (const char *rest = text; name_next(&rest, ",;", &word, &length);) {
        if (out->n == WORDS_MOST || length >= WORDS_CHARS) {
            return err_usage(err, "%s: expected at most %d words of under %d characters", place,
                             WORDS_MOST, WORDS_CHARS);
        }
        snprintf(out->word[out->n++], WORDS_CHARS, "%.*s", (int)length, word);
    }
    return 0;
}
