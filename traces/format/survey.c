#include "traces/format/survey.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/input/field.h"
#include "sim/base/mem.h"

bool survey_is_needed(const struct format *format, const struct layout *layout) {
    bool has_tenants = format->family->has_header ? layout->at[COLUMN_TENANT].position >= 0
                                                  : layout->at[COLUMN_TENANT].name != NULL;
    bool has_hashes = format->family->has_header && layout->at[COLUMN_HASHES].position >= 0;
    return !format->family->has_header || has_tenants || has_hashes || format->by_names ||
           layout->unit_ns == UNIT_ASKED;
}

void survey_begin(struct format_survey *survey, const struct format *format, struct layout *layout,
                  const char *path) {
    *survey = (struct format_survey){.format = format,
                                     .layout = layout,
                                     .path = path,
                                     .filled = {1, UINT32_MAX},
                                     .whole = {1, UINT32_MAX}};
}

void survey_end(struct format_survey *survey) {
    for (size_t i = 0; i < survey->unread.n; i++) {
        free(survey->unread.items[i]);
    }
    free(survey->unread.items);
    survey->unread = (struct survey_names){0};
}

/* ---- names that are not read ---- */

enum name_use { NAME_UNREAD, NAME_READ, NAME_WITHIN /* something below it is read */ };

static enum name_use use_of_place(const struct place *place, const char *path, size_t length) {
    if (place->name == NULL || strncmp(place->name, path, length) != 0) {
        return NAME_UNREAD;
    }
    return place->name[length] == '\0'  ? NAME_READ
           : place->name[length] == '.' ? NAME_WITHIN
                                        : NAME_UNREAD;
}

static enum name_use use_of(const struct layout *layout, const char *path, size_t length,
                            bool reads_failures) {
    const struct {
        const struct place *places;
        int n;
    } lists[] = {{layout->at, N_NAMED_COLUMNS},
                 {layout->musts, MAX_MUSTS},
                 {layout->where, layout->n_where},
                 {layout->fails, reads_failures ? layout->n_fails : 0}};
    enum name_use use = NAME_UNREAD;
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++) {
        for (int i = 0; i < lists[l].n; i++) {
            enum name_use one = use_of_place(&lists[l].places[i], path, length);
            use = one == NAME_READ || use == NAME_UNREAD ? one : use;
        }
    }
    return use;
}

void survey_add_name(struct survey_names *names, const char *name, size_t length) {
    for (size_t i = 0; i < names->n; i++) {
        if (strlen(names->items[i]) == length && memcmp(names->items[i], name, length) == 0) {
            return;
        }
    }
    enum { MOST = 256 };
    if (names->n < MOST) {
        names->items = mem_grown(names->items, names->n, &names->room, sizeof *names->items);
        names->items[names->n++] = mem_copied(name, length);
    }
}

static bool reads_failures(const struct format_survey *survey) {
    return survey->format->says_failures || survey->layout->skips_failed;
}

void survey_header(struct format_survey *survey) {
    const struct layout *layout = survey->layout;
    for (int i = 0; i < layout->n_columns; i++) {
        const struct field_span *name = &layout->names[i];
        if (name->length > 0 &&
            use_of(layout, name->text, name->length, reads_failures(survey)) != NAME_READ) {
            survey_add_name(&survey->unread, name->text, name->length);
        }
    }
}

static void look_for_unread(struct format_survey *survey, const json_t *object,
                            const char *before) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        char path[256];
        int n = snprintf(path, sizeof path, "%s%s%s", before, before[0] != '\0' ? "." : "", key);
        if (n < 0 || (size_t)n >= sizeof path) {
            continue;
        }
        enum name_use use = use_of(survey->layout, path, (size_t)n, reads_failures(survey));
        if (use == NAME_UNREAD) {
            survey_add_name(&survey->unread, path, (size_t)n);
        } else if (use == NAME_WITHIN && json_is_object(value)) {
            look_for_unread(survey, value, path);
        }
    }
}

/* ---- times ---- */

static void look_at_time(struct format_survey *survey, const struct record *record) {
    const struct place *place = &survey->layout->at[COLUMN_TIME];
    struct value value = {.kind = VALUE_NONE};
    int64_t ns;
    if (place->name == NULL) {
        return;
    }
    survey->format->family->look_up(record, place, &value);
    if ((value.kind != VALUE_TEXT && value.kind != VALUE_NUMBER) || value.length == 0 ||
        value.length >= sizeof survey->shown) {
        return;
    }
    char text[sizeof survey->shown];
    snprintf(text, sizeof text, "%.*s", (int)value.length, value.text);
    bool is_epoch = field_epoch_ns(text, value.length, &ns);
    bool is_date = !is_epoch && field_date_ns(text, value.length, &ns);
    /* JSON keeps no "2.0" apart from 2, but tells that it was no whole number. */
    bool is_real = record->object != NULL ? json_is_real(value.json)
                                          : strpbrk(text, ".eE") != NULL && !is_date;
    char *end;
    double number = strtod(text, &end);
    if (!is_date && *end != '\0' && survey->odd[0] == '\0') {
        snprintf(survey->odd, sizeof survey->odd, "%s", text);
        survey->odd_line = record->line->number;
    }
    if (survey->n_times == 0 || (is_real && survey->n_fractions == 0)) {
        snprintf(survey->shown, sizeof survey->shown, "%s", text);
    }
    survey->first = survey->n_times == 0 ? number : survey->first;
    survey->last = number > survey->last || survey->n_times == 0 ? number : survey->last;
    survey->n_times++;
    survey->n_dates += is_date;
    survey->n_epochs += is_epoch;
    if (is_real && survey->n_fractions++ == 0) {
        survey->fraction_line = record->line->number;
    }
}

/* The rate in each unit, for the user who has to choose one. */
static const char *rates_of(const struct format_survey *survey, char *text, size_t size) {
    static const int64_t units[] = {1000000000, 1000000, 1000};
    double span = survey->last - survey->first, n = (double)survey->n_times - 1;
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; span > 0 && n > 0 && i < sizeof units / sizeof units[0]; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%s: %.3g requests a second",
                                 i == 0 ? " (" : ", ", unit_word(units[i]),
                                 n / (span * (double)units[i] * 1e-9));
    }
    if (used > 0 && used + 2 < size) {
        snprintf(text + used, size - used, ")");
    }
    return text;
}

static int ask_for_unit(const struct format_survey *survey, struct err *err) {
    char rates[160];
    const struct layout *layout = survey->layout;
    const char *time = layout->at[COLUMN_TIME].name;
    if (survey->format->whole_units) {
        return err_usage(
            err,
            "%s:%" PRIu64 ": found %s in %s, where %s has whole milliseconds; some tools write "
            "seconds in such rows: --time-unit s or ms (a workload's time_unit) says which%s",
            survey->path, survey->fraction_line, survey->shown, time, survey->format->name,
            rates_of(survey, rates, sizeof rates));
    }
    if (survey->odd[0] != '\0') {
        return err_world(err, "%s:%" PRIu64 ": found '%s' in %s, expected " FIELD_DATE_EXPECTED,
                         survey->path, survey->odd_line, survey->odd, time);
    }
    return err_usage(err,
                     "%s: nothing says the unit of '%s', which begins at %s: --time-unit s, ms, us "
                     "or ns (a workload's time_unit), or --columns time=%s:s,input=%s,output=%s%s",
                     survey->path, time, survey->shown, time, layout->at[COLUMN_INPUT].name,
                     layout->at[COLUMN_OUTPUT].name, rates_of(survey, rates, sizeof rates));
}

static int settle_unit(struct format_survey *survey, int64_t asked_ns, FILE *notes,
                       struct err *err) {
    struct layout *layout = survey->layout;
    const char *time = layout->at[COLUMN_TIME].name;
    bool is_open = layout->unit_ns == UNIT_ASKED || survey->format->whole_units;
    uint64_t n = survey->n_times;
    if (time == NULL || asked_ns != UNIT_ASKED) {
        return 0; /* already in force */
    }
    if (is_open && n > 0 && survey->n_dates == n) {
        layout->unit_ns = UNIT_DATE;
    } else if (is_open && n > 0 && survey->n_dates + survey->n_epochs == n) {
        layout->unit_ns = UNIT_DATE;
        fprintf(notes, "times in %s count from 1970 by their digits; ", time);
    } else if (layout->unit_ns == UNIT_ASKED ||
               (survey->format->whole_units && survey->n_fractions > 0)) {
        return n > 0 ? ask_for_unit(survey, err) : 0;
    }
    return 0;
}

/* ---- hash ids ---- */

static void narrow(struct block_range *range, uint64_t least, uint64_t most) {
    range->least = least > range->least ? least : range->least;
    range->most = most < range->most ? most : range->most;
}

static void look_at_hashes(struct format_survey *survey, const struct record *record) {
    const struct format *format = survey->format;
    struct value input = {.kind = VALUE_NONE};
    struct err ignored = {0};
    uint32_t n, tokens;
    if (row_hashes(survey->layout, record, format->family, &n, &ignored) != 0 || n == 0) {
        return;
    }
    format->family->look_up(record, &survey->layout->at[COLUMN_INPUT], &input);
    if (input.text == NULL || !field_u32(input.text, input.length, &tokens) || tokens == 0) {
        return;
    }
    /* n = ceil(tokens / block), and n = floor(tokens / block). */
    narrow(&survey->filled, (tokens + (uint64_t)n - 1) / n,
           n > 1 ? (tokens - 1) / (n - 1) : UINT32_MAX);
    narrow(&survey->whole, tokens / ((uint64_t)n + 1) + 1, tokens / n);
    survey->n_hashed++;
    if (n > 1 || survey->hashed_line == 0) {
        survey->hashed_line = record->line->number;
        survey->hashed_ids = n;
        survey->hashed_tokens = tokens;
    }
}

/* The only size in a range, or the only power of two, which every tool's block is; 0: neither.
 * Where several powers fit, no row has two ids, and which it is makes no difference. */
static uint64_t size_in(const struct block_range *range, uint64_t published) {
    uint64_t found = 0;
    if (range->least > range->most) {
        return 0;
    }
    if (range->least == range->most || (published >= range->least && published <= range->most)) {
        return range->least == range->most ? range->least : published;
    }
    for (uint64_t size = 1; size <= range->most && found == 0; size *= 2) {
        found = size >= range->least ? size : 0;
    }
    return found;
}

static bool is_power(uint64_t size) {
    return size != 0 && (size & (size - 1)) == 0;
}

/* Prompts are filled with blocks, the last unfinished, or cut into whole ones. */
static uint64_t agreed_size(const struct format_survey *survey) {
    uint64_t published = survey->format->hash_tokens;
    uint64_t filled = size_in(&survey->filled, published);
    uint64_t whole = size_in(&survey->whole, published);
    bool are_apart = filled != 0 && !is_power(filled) && is_power(whole);
    return are_apart ? 0 : filled != 0 ? filled : whole;
}

static int no_size(const struct format_survey *survey, struct err *err) {
    const struct block_range *r =
        survey->filled.least <= survey->filled.most ? &survey->filled : &survey->whole;
    if (r->least <= r->most) {
        return err_usage(err,
                         "%s: a hash id stands for %" PRIu64 " to %" PRIu64
                         " tokens by the rows' numbers of them: --hash-tokens N (a workload's "
                         "hash_tokens) says how many",
                         survey->path, r->least, r->most);
    }
    return err_usage(err,
                     "%s:%" PRIu64 ": found %" PRIu32 " hash ids of a prompt of %" PRIu32
                     " tokens, and no one size of a block fits all rows: --hash-tokens N (a "
                     "workload's hash_tokens) says how many tokens an id stands for",
                     survey->path, survey->hashed_line, survey->hashed_ids, survey->hashed_tokens);
}

static int settle_hashes(struct format_survey *survey, uint32_t asked, FILE *notes,
                         struct err *err) {
    struct layout *layout = survey->layout;
    const char *name = layout->at[COLUMN_HASHES].name;
    uint64_t published = survey->format->hash_tokens;
    if (name == NULL || survey->n_hashed == 0) {
        return 0;
    }
    uint64_t size = agreed_size(survey);
    if (asked != 0) {
        layout->hash_tokens = asked;
        /* Ids of a part of the prompt are fine; more than it has blocks are not. */
        if (asked > survey->filled.most) {
            return err_usage(err,
                             "--hash-tokens %" PRIu32 ": %s:%" PRIu64 " has %" PRIu32
                             " hash ids for %" PRIu32 " tokens; %" PRIu64 " would fit",
                             asked, survey->path, survey->hashed_line, survey->hashed_ids,
                             survey->hashed_tokens, size != 0 ? size : survey->filled.most);
        }
        return 0;
    }
    if (size == 0) {
        return no_size(survey, err);
    }
    layout->hash_tokens = (uint32_t)size;
    if (size != published) {
        fprintf(notes, "a hash id stands for %" PRIu64 " tokens by the rows' numbers of them; ",
                size);
    }
    return 0;
}

/* ---- all ---- */

static void look_at_session(struct format_survey *survey, const struct record *record) {
    struct value value = {.kind = VALUE_NONE};
    if (survey->layout->at[COLUMN_SESSION].name != NULL) {
        survey->format->family->look_up(record, &survey->layout->at[COLUMN_SESSION], &value);
    }
    survey->has_sessions = survey->has_sessions || value.kind > VALUE_NULL;
}

static void look_at_tenant(struct format_survey *survey, const struct record *record) {
    struct value value = {.kind = VALUE_NONE};
    uint32_t number;
    if (survey->layout->at[COLUMN_TENANT].name == NULL) {
        return;
    }
    survey->format->family->look_up(record, &survey->layout->at[COLUMN_TENANT], &value);
    survey->tenants_are_texts =
        survey->tenants_are_texts ||
        (value.kind == VALUE_TEXT && !field_u32(value.text, value.length, &number) &&
         !(value.length > 1 && value.text[0] == '-')) ||
        (value.kind == VALUE_TEXT && record->object != NULL);
}

void survey_row(struct format_survey *survey, const struct record *record) {
    struct err ignored = {0};
    bool failed = false;
    if (record->object != NULL) {
        look_for_unread(survey, record->object, "");
    }
    if (reads_failures(survey)) {
        (void)status_read(survey->layout, record, survey->format->family, &failed, &ignored);
    }
    if (!failed) {
        look_at_time(survey, record);
        look_at_hashes(survey, record);
        look_at_tenant(survey, record);
        look_at_session(survey, record);
    }
}

int survey_settle(struct format_survey *survey, int64_t unit_ns, uint32_t hash_tokens, FILE *notes,
                  struct err *err) {
    survey->layout->named_tenants = survey->tenants_are_texts;
    int status = settle_unit(survey, unit_ns, notes, err);
    return status != 0 ? status : settle_hashes(survey, hash_tokens, notes, err);
}
