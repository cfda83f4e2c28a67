#include "sim/base/input/field.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "sim/base/num.h"

enum { MAX_NUMBER_CHARS = 63, QUOTE_CHARS = 40 };

static const int64_t ns_per_s = 1000000000;

int field_spans(const char *line, size_t length, bool is_quoted, struct field_span fields[],
                int most) {
    const char *at = line, *end = line + length;
    for (int n = 0;; n++) {
        struct field_span field = {at, 0};
        if (is_quoted && at < end && *at == '"') {
            field.text = ++at;
            while (at < end && (*at != '"' || (at + 1 < end && at[1] == '"'))) {
                at += 1 + (*at == '"');
            }
            if (at == end || (at + 1 < end && at[1] != ',')) {
                return -1;
            }
            field.length = (size_t)(at++ - field.text);
        } else {
            const char *comma = at < end ? memchr(at, ',', (size_t)(end - at)) : NULL;
            at = comma != NULL ? comma : end;
            field.length = (size_t)(at - field.text);
        }
        if (n < most) {
            fields[n] = field;
        }
        if (at == end) {
            return n + 1;
        }
        at++;
    }
}

int field_cut(char *line, bool is_quoted, char *fields[], int most) {
    struct field_span spans[FIELD_MOST];
    int n = field_spans(line, strlen(line), is_quoted, spans, most);
    for (int i = 0; i < n && i < most; i++) {
        char *text = fields[i] = line + (spans[i].text - line), *out = text;
        bool was_quoted = is_quoted && text > line && text[-1] == '"';
        if (!was_quoted) {
            out[spans[i].length] = '\0';
            continue;
        }
        for (size_t c = 0; c < spans[i].length; c++) {
            c += text[c] == '"'; /* of two, one */
            *out++ = text[c];
        }
        *out = '\0';
    }
    return n;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool field_u32(const char *text, size_t length, uint32_t *out) {
    if (length == 0 || length > 10) {
        return false;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < length; i++) {
        if (!is_digit(text[i])) {
            return false;
        }
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    if (value > UINT32_MAX) {
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

/* A fraction of one unit, its digits from `text`, rounded to the nearest nanosecond; false unless
 * all are digits. */
static bool read_fraction_ns(const char *text, size_t length, int64_t unit_ns, int64_t *out) {
    int64_t place_ns = unit_ns, sum_ns = 0;
    bool rounded = false;
    for (size_t i = 0; i < length; i++) {
        if (!is_digit(text[i])) {
            return false;
        }
        if (place_ns >= 10) {
            place_ns /= 10;
            sum_ns += place_ns * (text[i] - '0');
        } else if (!rounded) {
            sum_ns += text[i] >= '5';
            rounded = true;
        }
    }
    *out = sum_ns;
    return true;
}

/* What the fast path leaves: exponents, a leading '+' or '.'. */
static bool read_double_ns(const char *text, size_t length, int64_t unit_ns, int64_t *out) {
    char number[MAX_NUMBER_CHARS + 1];
    if (length == 0 || length > MAX_NUMBER_CHARS || text[0] == '-') {
        return false;
    }
    memcpy(number, text, length);
    number[length] = '\0';
    double value;
    if (strlen(number) != length || !num_f64(number, &value) ||
        value * (double)unit_ns > (double)FIELD_MAX_NS) {
        return false;
    }
    *out = llround(value * (double)unit_ns);
    return true;
}

bool field_time_ns(const char *text, size_t length, int64_t unit_ns, int64_t *out) {
    int64_t whole = 0;
    size_t i = 0;
    for (; i < length && is_digit(text[i]); i++) {
        whole = whole * 10 + (text[i] - '0');
        if (whole > FIELD_MAX_NS / unit_ns) {
            return false;
        }
    }
    int64_t fraction_ns = 0;
    bool has_point = i > 0 && i + 1 < length && text[i] == '.';
    if (i == 0 || (i < length && !has_point) ||
        (has_point && !read_fraction_ns(text + i + 1, length - i - 1, unit_ns, &fraction_ns))) {
        return read_double_ns(text, length, unit_ns, out);
    }
    int64_t total_ns = whole * unit_ns + fraction_ns;
    if (total_ns > FIELD_MAX_NS) {
        return false;
    }
    *out = total_ns;
    return true;
}

/* Exactly `n` digits at `*cursor`, which moves past them. */
static bool take_digits(const char **cursor, const char *end, int n, int64_t *out) {
    int64_t value = 0;
    for (int i = 0; i < n; i++) {
        if (*cursor == end || !is_digit(**cursor)) {
            return false;
        }
        value = value * 10 + (*(*cursor)++ - '0');
    }
    *out = value;
    return true;
}

static bool take_char(const char **cursor, const char *end, const char *allowed) {
    if (*cursor == end || **cursor == '\0' || strchr(allowed, **cursor) == NULL) {
        return false;
    }
    (*cursor)++;
    return true;
}

/* Days from 1970-01-01 in the proleptic Gregorian calendar (H. Hinnant, "chrono-compatible
 * low-level date algorithms", days_from_civil, 2013). */
static int64_t days_from_civil(int64_t year, int64_t month, int64_t day) {
    year -= month <= 2;
    int64_t era = year / 400;
    int64_t year_of_era = year - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

static int64_t days_in_month(int64_t year, int64_t month) {
    static const int64_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leaps = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (month == 2 && leaps);
}

/* "12:34" or "1234", or "12" alone: hours and minutes of an offset. */
static bool take_offset(const char **cursor, const char *end, int64_t *offset_s) {
    int64_t sign = **cursor == '-' ? -1 : 1, hours, minutes = 0;
    (*cursor)++;
    if (!take_digits(cursor, end, 2, &hours)) {
        return false;
    }
    bool has_colon = take_char(cursor, end, ":");
    bool has_more = *cursor < end && is_digit(**cursor);
    if ((has_colon || has_more) && !take_digits(cursor, end, 2, &minutes)) {
        return false;
    }
    *offset_s = sign * (hours * 3600 + minutes * 60);
    return hours <= 14 && minutes <= 59;
}

/* A word without regard to case. */
static bool take_word(const char **cursor, const char *end, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(end - *cursor) < n || strncasecmp(*cursor, word, n) != 0) {
        return false;
    }
    *cursor += n;
    return true;
}

static bool take_utc(const char **cursor, const char *end) {
    static const char *const words[] = {"UTC", "GMT", "UT", "Z"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (take_word(cursor, end, words[i])) {
            return true;
        }
    }
    return false;
}

/* The time zone after the seconds: nothing, UTC by one of its names, or an offset, which Go follows
 * by a name. What Java ("[Europe/Paris]") and Go (" m=+0.5") add is passed over. */
static bool take_zone(const char **cursor, const char *end, int64_t *offset_s) {
    *offset_s = 0;
    if (take_char(cursor, end, " ") && *cursor == end) {
        return false;
    }
    bool is_utc = take_utc(cursor, end);
    bool has_offset = *cursor < end && (**cursor == '+' || **cursor == '-');
    if (has_offset && !take_offset(cursor, end, offset_s)) {
        return false;
    }
    if (has_offset && !is_utc && take_word(cursor, end, " UTC")) {
        is_utc = true;
    }
    if ((is_utc || has_offset) && (take_char(cursor, end, "[") || take_word(cursor, end, " m="))) {
        *cursor = end;
    }
    return *cursor == end;
}

/* Of the calendar and the clock. */
struct civil {
    int64_t year, month, day, hour, minute, second, fraction_ns;
};

static bool take_month_name(const char **cursor, const char *end, int64_t *month) {
    static const char names[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    for (int i = 0; i < 12; i++) {
        if (take_word(cursor, end, names[i])) {
            *month = i + 1;
            return true;
        }
    }
    return false;
}

/* "2023-11-16", "2023/11/16" or "20231116"; "16/Nov/2023" of web servers and "Thu, 16 Nov 2023" of
 * HTTP and mail. Numbers alone begin with the year. */
static bool take_day(const char **cursor, const char *end, struct civil *t) {
    const char *begin = *cursor;
    const char *comma = memchr(begin, ',', (size_t)(end - begin < 5 ? end - begin : 5));
    if (comma != NULL) { /* the day of the week says nothing new */
        *cursor = comma + 1;
        (void)take_char(cursor, end, " ");
    }
    const char *day = *cursor;
    if (take_digits(cursor, end, 2, &t->day) && take_char(cursor, end, "/- ") &&
        take_month_name(cursor, end, &t->month) && take_char(cursor, end, "/- ") &&
        take_digits(cursor, end, 4, &t->year)) {
        return true;
    }
    *cursor = day;
    if (comma != NULL || !take_digits(cursor, end, 4, &t->year)) {
        return false;
    }
    char mark = *cursor < end ? **cursor : '\0';
    bool has_mark = take_char(cursor, end, "-/");
    return take_digits(cursor, end, 2, &t->month) &&
           (!has_mark || take_char(cursor, end, (char[]){mark, '\0'})) &&
           take_digits(cursor, end, 2, &t->day);
}

/* "18:15:46.68", a comma for the point; "181546"; without seconds these are 0. */
static bool take_clock(const char **cursor, const char *end, struct civil *t) {
    if (!take_digits(cursor, end, 2, &t->hour)) {
        return false;
    }
    bool has_mark = take_char(cursor, end, ":");
    if (!take_digits(cursor, end, 2, &t->minute)) {
        return false;
    }
    if (has_mark ? !take_char(cursor, end, ":") : *cursor == end || !is_digit(**cursor)) {
        return has_mark;
    }
    if (!take_digits(cursor, end, 2, &t->second)) {
        return false;
    }
    if (!take_char(cursor, end, ".,")) {
        return true;
    }
    const char *digits = *cursor;
    while (*cursor < end && is_digit(**cursor)) {
        (*cursor)++;
    }
    return *cursor > digits &&
           read_fraction_ns(digits, (size_t)(*cursor - digits), ns_per_s, &t->fraction_ns);
}

/* Up to 2100, so that the sum fits. */
static bool is_civil(const struct civil *t) {
    return t->year >= 1970 && t->year <= 2100 && t->month >= 1 && t->month <= 12 && t->day >= 1 &&
           t->day <= days_in_month(t->year, t->month) && t->hour <= 23 && t->minute <= 59 &&
           t->second <= 59;
}

bool field_epoch_ns(const char *text, size_t length, int64_t *out) {
    static const struct {
        size_t digits;
        int64_t unit_ns;
    } units[] = {{10, 1000000000}, {13, 1000000}, {16, 1000}, {19, 1}};
    size_t n = 0;
    while (n < length && is_digit(text[n])) {
        n++;
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (n == units[i].digits && text[0] != '0' && (n == length || text[n] == '.')) {
            return field_time_ns(text, length, units[i].unit_ns, out);
        }
    }
    return false;
}

bool field_date_ns(const char *text, size_t length, int64_t *out) {
    const char *cursor = text, *end = text + length;
    struct civil t = {0};
    int64_t offset_s;
    if (!take_day(&cursor, end, &t) || !take_char(&cursor, end, " Tt:_") ||
        !take_clock(&cursor, end, &t) || !is_civil(&t) || !take_zone(&cursor, end, &offset_s)) {
        return field_epoch_ns(text, length, out);
    }
    int64_t seconds = days_from_civil(t.year, t.month, t.day) * 86400 + t.hour * 3600 +
                      t.minute * 60 + t.second - offset_s;
    *out = seconds * ns_per_s + t.fraction_ns;
    return true;
}

const char *field_quote(const char *text, size_t length, char *out, size_t size) {
    size_t shown = length <= QUOTE_CHARS ? length : QUOTE_CHARS - 3;
    size_t n = 0;
    for (; n < shown && n + 4 < size; n++) {
        out[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
    }
    snprintf(out + n, size - n, "%s", shown < length ? "..." : "");
    return out;
}

int field_bad(const struct line *line, const char *text, size_t length, const char *column,
              const char *expected, struct err *err) {
    char quoted[QUOTE_CHARS + 8];
    return err_world(err, "%s:%" PRIu64 ": found '%s' in %s, expected %s", line->path, line->number,
                     field_quote(text, length, quoted, sizeof quoted), column, expected);
}
