/* Which columns or keys say what, by the names that tools give them. Only names are guessed, and it
 * is said: a time without a unit in its name is asked for its unit (survey.c). */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/base/system.h"
#include "traces/format/format.h"

enum { MOST_DEPTH = 4, PATH_CHARS = 200, WORD_CHARS = 64 };

/* In lower case, without what is between words; the first in the list wins. Of an end, "usage." and
 * what else stands before it, only the last key counts. */
static const char *const time_words[] = {"arrival",
                                         "arrivaltime",
                                         "arrivaltimestamp",
                                         "arrivedat",
                                         "arrivalts",
                                         "requestarrival",
                                         "requestarrivaltime",
                                         "timestamp",
                                         "ts",
                                         "time",
                                         "datetime",
                                         "requesttime",
                                         "requesttimestamp",
                                         "requeststart",
                                         "requeststarttime",
                                         "requestts",
                                         "receivedat",
                                         "receivedtime",
                                         "requestreceivedts",
                                         "requestreceived",
                                         "submittime",
                                         "submittedat",
                                         "submissiontime",
                                         "submittimestamp",
                                         "start",
                                         "starttime",
                                         "starttimestamp",
                                         "startedat",
                                         "startts",
                                         "begintime",
                                         "sentat",
                                         "sendtime",
                                         "senttime",
                                         "issuetime",
                                         "issuedat",
                                         "enqueuetime",
                                         "queuedat",
                                         "created",
                                         "createdat",
                                         "createdtime",
                                         "createtime",
                                         "creationtime",
                                         "eventtime",
                                         "date",
                                         NULL};
static const char *const input_words[] = {"prompttokens",
                                          "inputtokens",
                                          "requesttokens",
                                          "contexttokens",
                                          "prefilltokens",
                                          "inputlength",
                                          "inputlen",
                                          "promptlength",
                                          "promptlen",
                                          "promptsize",
                                          "numprompttokens",
                                          "numinputtokens",
                                          "numprefilltokens",
                                          "nprompttokens",
                                          "ninputtokens",
                                          "prompttokencount",
                                          "inputtokencount",
                                          "inputtokenscount",
                                          "prompttokenscount",
                                          "inputtoks",
                                          "prompttoks",
                                          "inputsequencelength",
                                          "isl",
                                          "tokensprompt",
                                          "tokensinput",
                                          "tokensin",
                                          "promptntokens",
                                          "inputntokens",
                                          "intokens",
                                          "numtokensprompt",
                                          "numtokensinput",
                                          "queryttokens",
                                          "contextlength",
                                          NULL};
static const char *const output_words[] = {"completiontokens",
                                           "outputtokens",
                                           "responsetokens",
                                           "generatedtokens",
                                           "generationtokens",
                                           "decodetokens",
                                           "outputlength",
                                           "outputlen",
                                           "completionlength",
                                           "responselength",
                                           "generationlength",
                                           "outputsize",
                                           "numcompletiontokens",
                                           "numoutputtokens",
                                           "numdecodetokens",
                                           "ncompletiontokens",
                                           "noutputtokens",
                                           "numgeneratedtokens",
                                           "numgenerationtokens",
                                           "completiontokencount",
                                           "outputtokencount",
                                           "outputtokenscount",
                                           "completiontokenscount",
                                           "candidatestokencount",
                                           "responsetokencount",
                                           "outputtoks",
                                           "outputsequencelength",
                                           "osl",
                                           "tokenscompletion",
                                           "tokensoutput",
                                           "tokensout",
                                           "outtokens",
                                           "tokengenerated",
                                           "tokensgenerated",
                                           "numtokensoutput",
                                           "generatedlength",
                                           NULL};
static const char *const session_words[] = {"sessionid", "session", "conversationid", NULL};
static const char *const tenant_words[] = {"tenant", "tenantid", NULL};

static const struct {
    const char *word;
    int64_t ns;
} unit_names[] = {
    {"ns", 1},           {"nanos", 1},         {"nanoseconds", 1},        {"us", 1000},
    {"usec", 1000},      {"micros", 1000},     {"microseconds", 1000},    {"ms", 1000000},
    {"msec", 1000000},   {"millis", 1000000},  {"milliseconds", 1000000}, {"s", 1000000000},
    {"sec", 1000000000}, {"secs", 1000000000}, {"second", 1000000000},    {"seconds", 1000000000}};

/* The words of a name, put together in lower case without its unit: "requestStart_ms" is
 * "requeststart" in ms. What says only how a time is counted is passed over. */
static void normalise(const char *name, size_t length, char out[WORD_CHARS], int64_t *unit_ns) {
    size_t used = 0;
    *unit_ns = UNIT_ASKED;
    out[0] = '\0';
    for (size_t i = 0; i < length;) {
        if (!isalnum((unsigned char)name[i])) {
            i++;
            continue;
        }
        size_t begin = i++;
        while (i < length && isalnum((unsigned char)name[i]) &&
               !(isupper((unsigned char)name[i]) && islower((unsigned char)name[i - 1]))) {
            i++;
        }
        char word[WORD_CHARS];
        size_t n = i - begin < WORD_CHARS ? i - begin : WORD_CHARS - 1;
        for (size_t c = 0; c < n; c++) {
            word[c] = (char)tolower((unsigned char)name[begin + c]);
        }
        word[n] = '\0';
        bool is_unit = false;
        for (size_t u = 0; u < sizeof unit_names / sizeof unit_names[0]; u++) {
            if (used > 0 && strcmp(word, unit_names[u].word) == 0) {
                *unit_ns = unit_names[u].ns;
                is_unit = true;
            }
        }
        bool says_nothing = strcmp(word, "unix") == 0 || strcmp(word, "epoch") == 0 ||
                            strcmp(word, "utc") == 0 || strcmp(word, "iso") == 0 ||
                            strcmp(word, "native") == 0;
        if (!is_unit && !says_nothing && used + n < WORD_CHARS) {
            memcpy(out + used, word, n + 1);
            used += n;
        }
    }
}

static int rank_of(const char *const *words, const char *name) {
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

/* The best name for a column so far: the one that stands least deep, then first in its list. */
struct found {
    const char *const *words;
    char path[PATH_CHARS];
    int depth, rank;
    int64_t unit_ns;
    bool is_shared; /* another one is as good */
    char other[PATH_CHARS];
};

static void offer(struct found *found, const char *path, const char *key, size_t length,
                  int depth) {
    char word[WORD_CHARS];
    int64_t unit_ns;
    normalise(key, length, word, &unit_ns);
    int rank = rank_of(found->words, word);
    bool is_better = found->path[0] == '\0' || depth < found->depth ||
                     (depth == found->depth && rank < found->rank);
    if (rank < 0) {
        return;
    }
    if (is_better) {
        snprintf(found->path, sizeof found->path, "%s", path);
        found->depth = depth;
        found->rank = rank;
        found->unit_ns = unit_ns;
        found->is_shared = false;
    } else if (depth == found->depth && rank == found->rank) {
        found->is_shared = true;
        snprintf(found->other, sizeof found->other, "%s", path);
    }
}

enum { N_GUESSED = 5 };
static const enum column guessed[N_GUESSED] = {COLUMN_TIME, COLUMN_INPUT, COLUMN_OUTPUT,
                                               COLUMN_SESSION, COLUMN_TENANT};

static void walk(const json_t *object, const char *before, int depth, struct found *found) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        char path[PATH_CHARS];
        int n = snprintf(path, sizeof path, "%s%s%s", before, before[0] != '\0' ? "." : "", key);
        if (n >= (int)sizeof path) {
            continue;
        }
        if (json_is_object(value)) {
            if (depth < MOST_DEPTH) {
                walk(value, path, depth + 1, found);
            }
            continue;
        }
        for (int i = 0; i < N_GUESSED; i++) {
            offer(&found[i], path, key, strlen(key), depth);
        }
    }
}

static void look_at_header(const struct layout *layout, struct found *found) {
    for (int c = 0; c < layout->n_columns; c++) {
        const struct field_span *name = &layout->names[c];
        char path[PATH_CHARS];
        snprintf(path, sizeof path, "%.*s", (int)name->length, name->text);
        /* Tables made of JSON have its paths as names. */
        const char *dot = system_last(name->text, '.', name->length);
        const char *key = dot != NULL ? dot + 1 : name->text;
        for (int i = 0; i < N_GUESSED; i++) {
            offer(&found[i], path, key, (size_t)(name->text + name->length - key), 0);
        }
    }
}

bool format_guess(const struct record *first, const struct layout *layout, struct format *out,
                  struct err *err) {
    struct found found[N_GUESSED] = {{.words = time_words},
                                     {.words = input_words},
                                     {.words = output_words},
                                     {.words = session_words},
                                     {.words = tenant_words}};
    bool is_json = first->object != NULL;
    if (is_json) {
        walk(first->object, "", 0, found);
    } else {
        look_at_header(layout, found);
    }
    if (found[1].path[0] == '\0' || found[2].path[0] == '\0') {
        return false;
    }
    for (int i = 0; i < 3; i++) {
        if (found[i].is_shared) {
            err_world(err,
                      "%s:%" PRIu64 ": found both '%s' and '%s' for %s, expected one; "
                      "--columns says which",
                      first->line->path, first->line->number, found[i].path, found[i].other,
                      column_words[guessed[i]]);
            return false;
        }
    }
    *out = (struct format){.name = is_json ? "json-lines" : "csv",
                           .family = is_json ? &family_jsonl : &family_csv,
                           .unit_ns = found[0].path[0] != '\0' ? found[0].unit_ns : 1,
                           .says_failures = true,
                           .any_order = true,
                           .by_names = true};
    for (int i = 0; i < N_GUESSED; i++) {
        if (found[i].path[0] != '\0' && !found[i].is_shared) {
            out->columns[guessed[i]] = mem_text(found[i].path);
        }
    }
    return true;
}
