#include "experiments/server/start_log.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/num.h"
#include "sim/input/text.h"

enum { MOST_BYTES = 256 << 20, DEFAULT_BLOCK_TOKENS = 16 }; /* vLLM's --block-size on CUDA */

static bool is_of_name(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* ---- Python's values ---- */

/* The end of a text in quotes, from its opening one. */
static const char *skip_quoted(const char *at) {
    char quote = *at++;
    while (*at != '\0' && *at != quote) {
        at += at[0] == '\\' && at[1] != '\0' ? 2 : 1;
    }
    return *at == '\0' ? at : at + 1;
}

/* The end of a value: the comma, the bracket or the end of the line that ends it. Lines that a
 * terminal broke go on within brackets; `outer`: the value stands within some itself. */
static const char *skip_value(const char *at, bool outer) {
    int depth = 0;
    while (*at != '\0') {
        if (*at == '\'' || *at == '"') {
            at = skip_quoted(at);
            continue;
        }
        if (strchr("([{<", *at) != NULL) {
            depth++;
        } else if (strchr(")]}>", *at) != NULL) {
            if (depth == 0) {
                return at;
            }
            depth--;
        } else if (depth == 0 && (*at == ',' || (*at == '\n' && !outer))) {
            return at;
        }
        at++;
    }
    return at;
}

/* The value without quotes and blanks around it; None is "". */
static void copy_value(const char *from, const char *to, char out[START_LOG_VALUE_CHARS]) {
    while (from < to && isspace((unsigned char)*from)) {
        from++;
    }
    while (to > from && isspace((unsigned char)to[-1])) {
        to--;
    }
    if (to - from >= 2 && (*from == '\'' || *from == '"') && to[-1] == *from) {
        from++;
        to--;
    }
    size_t n = 0;
    for (; from < to && n + 1 < START_LOG_VALUE_CHARS; from++) {
        unsigned char c = (unsigned char)*from;
        out[n++] = c >= ' ' && c != 0x7f ? (char)c : ' ';
    }
    while (n > 0 && ((unsigned char)out[n - 1] & 0x80) != 0 && from < to) {
        n--; /* a letter of several bytes that was cut */
    }
    out[n] = '\0';
    if (strcmp(out, "None") == 0) {
        out[0] = '\0';
    }
}

/* ---- arguments ---- */

static void keep(struct start_log *log, const char *name, size_t length, const char *value,
                 bool is_default) {
    size_t i = 0;
    if (value[0] == '\0' || length == 0 || length >= START_LOG_NAME_CHARS) {
        return;
    }
    while (i < log->n && (strlen(log->arguments[i].name) != length ||
                          memcmp(log->arguments[i].name, name, length) != 0)) {
        i++;
    }
    if (i == START_LOG_MOST) {
        return;
    }
    struct log_argument *a = &log->arguments[i];
    if (i == log->n) {
        log->n++;
        a->is_default = is_default;
    }
    memcpy(a->name, name, length);
    a->name[length] = '\0';
    snprintf(a->value, sizeof a->value, "%s", value);
}

/* "'name': value, ..." or "name=value, ..." up to the bracket that closes it, or to the end of the
 * line where it has none. */
static void take_items(struct start_log *log, const char *at, bool outer, bool is_default) {
    while (*at != '\0') {
        char value[START_LOG_VALUE_CHARS];
        while (*at == ',' || *at == ' ' || (outer && isspace((unsigned char)*at))) {
            at++;
        }
        bool is_quoted = *at == '\'' || *at == '"';
        const char *name = at + is_quoted, *end = name;
        while (is_of_name(*end)) {
            end++;
        }
        at = end + (is_quoted && *end != '\0');
        at += strspn(at, " ");
        if (end == name || (*at != '=' && *at != ':')) {
            return;
        }
        const char *from = at + 1;
        at = skip_value(from, outer);
        copy_value(from, at, value);
        keep(log, name, (size_t)(end - name), value, is_default);
        if (*at != ',') {
            return;
        }
    }
}

/* Where arguments are printed, and whether that is how a start begins. */
static const struct dump {
    const char *mark;
    bool begins, outer, is_default, is_sglang;
} dumps[] = {
    {"non-default args: {", true, true, false, false},
    {"args: Namespace(", true, true, true, false},
    {"server_args=ServerArgs(", true, true, true, true},
    {"server_args={", true, true, true, true},
    {"with config: ", false, false, true, false},
};

/* Sentences and lines that state one or a few numbers, whole words before '='. */
static const char *const stated[] = {"max_num_batched_tokens",
                                     "max_num_seqs",
                                     "gpu_memory_utilization",
                                     "block_size",
                                     "max_running_requests",
                                     "chunked_prefill_size",
                                     "context_len"};

static void take_stated(struct start_log *log, const char *line) {
    for (size_t i = 0; i < sizeof stated / sizeof stated[0]; i++) {
        size_t length = strlen(stated[i]);
        for (const char *at = line; (at = strstr(at, stated[i])) != NULL; at += length) {
            char value[START_LOG_VALUE_CHARS];
            bool is_whole = at == line || !is_of_name(at[-1]);
            const char *from = at + length;
            if (!is_whole || (*from != '=' && *from != ':')) {
                continue;
            }
            from += 1 + strspn(from + 1, " ");
            size_t n = strspn(from, "0123456789.");
            n -= n > 0 && from[n - 1] == '.'; /* the end of a sentence */
            copy_value(from, from + n, value);
            keep(log, stated[i], length, value, true);
        }
    }
}

/* The whole number after `words`, which may have commas; 0: there is none. */
static uint64_t count_behind(const char *line, const char *words) {
    const char *at = strstr(line, words);
    char digits[24];
    size_t n = 0;
    for (const char *c = at != NULL ? at + strlen(words) : "";
         n + 1 < sizeof digits && (isdigit((unsigned char)*c) || (*c == ',' && n > 0)); c++) {
        digits[n] = *c;
        n += *c != ',';
    }
    digits[n] = '\0';
    uint64_t count = 0;
    return n > 0 && num_u64(digits, UINT32_MAX, &count) ? count : 0;
}

static void take_pool(struct start_log *log, const char *line) {
    static const char *const tokens[] = {
        "GPU KV cache size: ", "max_total_num_tokens=", "KV Cache is allocated. #tokens: "};
    uint64_t blocks = count_behind(line, "# GPU blocks: ");
    log->pool_blocks = blocks > 0 ? blocks : log->pool_blocks;
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        uint64_t count = count_behind(line, tokens[i]);
        log->pool_tokens = count > 0 ? count : log->pool_tokens;
        log->is_sglang |= count > 0 && i > 0;
    }
}

/* Colours of a terminal become blanks. */
static void drop_colours(char *text) {
    for (char *at = text; (at = strchr(at, '\033')) != NULL;) {
        size_t n = at[1] == '[' ? 2 + strspn(at + 2, "0123456789;") : 1;
        n += at[1] == '[' && isalpha((unsigned char)at[n]);
        memset(at, ' ', n);
    }
}

static void take_line(struct start_log *log, char *line, const char *end) {
    for (size_t i = 0; i < sizeof dumps / sizeof dumps[0]; i++) {
        const struct dump *dump = &dumps[i];
        const char *at = strstr(line, dump->mark);
        if (at == NULL || at >= end) {
            continue;
        }
        if (dump->begins) {
            *log = (struct start_log){.is_sglang = dump->is_sglang};
        }
        take_items(log, at + strlen(dump->mark), dump->outer, dump->is_default);
        return;
    }
    char kept = *end;
    line[end - line] = '\0';
    take_stated(log, line);
    take_pool(log, line);
    line[end - line] = kept;
}

int start_log_read(const char *path, struct start_log *out, struct err *err) {
    size_t size;
    char *text = text_read(path, "server log", MOST_BYTES, &size, err);
    *out = (struct start_log){0};
    if (text == NULL) {
        return err_status(err);
    }
    drop_colours(text);
    for (char *line = text; *line != '\0';) {
        char *end = line + strcspn(line, "\n");
        take_line(out, line, end);
        line = *end == '\n' ? end + 1 : end;
    }
    free(text);
    start_log_judge(out);
    return out->n > 0 || out->pool_tokens > 0 || out->pool_blocks > 0
               ? 0
               : err_world(err,
                           "%s: found no max_num_seqs, max_num_batched_tokens, "
                           "gpu_memory_utilization, 'GPU KV cache size', 'non-default args' or "
                           "'server_args', expected what vLLM or SGLang logs when it starts",
                           path);
}

uint64_t start_log_pages(const struct start_log *log, uint64_t block_tokens) {
    uint64_t tokens = block_tokens > 0 ? block_tokens
                      : log->is_sglang ? 1 /* its page_size where nothing is said */
                                       : DEFAULT_BLOCK_TOKENS;
    return log->pool_blocks > 0 ? log->pool_blocks : log->pool_tokens / tokens;
}

const struct log_argument *start_log_taken(const struct start_log *log, const char *key) {
    const struct log_argument *found = NULL;
    for (size_t i = 0; i < log->n; i++) {
        const struct log_argument *a = &log->arguments[i];
        found = a->use == LOG_TAKEN && strcmp(a->key, key) == 0 ? a : found;
    }
    return found;
}

/* ---- telling ---- */

static size_t count(const struct start_log *log, enum log_use use) {
    size_t n = 0;
    for (size_t i = 0; i < log->n; i++) {
        n += log->arguments[i].use == use;
    }
    return n;
}

const char *start_log_list(const struct start_log *log, enum log_use use, char *text, size_t size) {
    size_t n = count(log, use), told = 0, used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < log->n && used < size; i++) {
        const struct log_argument *a = &log->arguments[i];
        if (a->use == use) {
            told++;
            used += (size_t)snprintf(text + used, size - used, "%s%s = %s",
                                     told == 1   ? ""
                                     : told == n ? " and "
                                                 : ", ",
                                     a->name, a->value);
        }
    }
    return text;
}

enum { MOST_SHOWN = 12 };

static void print_unknown(const struct start_log *log, FILE *out) {
    size_t shown = 0, left = 0;
    for (size_t i = 0; i < log->n; i++) {
        const struct log_argument *a = &log->arguments[i];
        if (a->use != LOG_UNKNOWN || a->is_default || shown == MOST_SHOWN) {
            left += a->use == LOG_UNKNOWN;
            continue;
        }
        fprintf(out, "%-12s%s = %s\n", shown++ == 0 ? "unknown" : "", a->name, a->value);
    }
    if (left > 0) {
        fprintf(out, "%-12s%s%zu more of the arguments that it printed\n",
                shown == 0 ? "unknown" : "", shown == 0 ? "" : "and ", left);
    }
}

void start_log_print(const struct start_log *log, FILE *out) {
    static const struct {
        enum log_use use;
        const char *head;
    } parts[] = {{LOG_TAKEN, "taken"}, {LOG_NOT_TAKEN, "not taken"}, {LOG_DIFFERS, "differs"}};
    fprintf(out, "\nof %s's log\n", log->is_sglang ? "SGLang" : "vLLM");
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        bool is_first = true;
        for (size_t i = 0; i < log->n; i++) {
            const struct log_argument *a = &log->arguments[i];
            if (a->use == parts[p].use) {
                fprintf(out, "%-12s%s = %s", is_first ? parts[p].head : "", a->name, a->value);
                fprintf(out, a->use == LOG_TAKEN ? " (%s)\n" : ": %s\n",
                        a->use == LOG_TAKEN ? a->key : a->why);
                is_first = false;
            }
        }
    }
    if (log->pool_blocks > 0 || log->pool_tokens > 0) {
        fprintf(out, "%-12s%" PRIu64 " %s (pool_pages)\n", "pool",
                log->pool_blocks > 0 ? log->pool_blocks : log->pool_tokens,
                log->pool_blocks > 0 ? "pages" : "tokens");
    }
    print_unknown(log, out);
}

json_t *start_log_json(const struct start_log *log) {
    json_t *lists[LOG_UNKNOWN + 1];
    for (int use = 0; use <= LOG_UNKNOWN; use++) {
        lists[use] = json_array();
    }
    for (size_t i = 0; i < log->n; i++) {
        const struct log_argument *a = &log->arguments[i];
        json_t *object = json_pack("{s:s, s:s, s:s*, s:s*}", "name", a->name, "value", a->value,
                                   "key", a->use == LOG_TAKEN ? a->key : NULL, "why", a->why);
        json_array_append_new(lists[a->use], object);
    }
    json_decref(lists[LOG_HARMLESS]);
    return json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:o}", "program",
                     log->is_sglang ? "SGLang" : "vLLM", "pool_tokens",
                     (json_int_t)log->pool_tokens, "pool_pages", (json_int_t)log->pool_blocks,
                     "taken", lists[LOG_TAKEN], "not_taken", lists[LOG_NOT_TAKEN], "differs",
                     lists[LOG_DIFFERS], "unknown", lists[LOG_UNKNOWN]);
}
