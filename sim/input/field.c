#include "sim/input/field.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

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
        for (size_t c = 0; c < spans[i].length; c++) {
            c += was_quoted && text[c] == '"'; /* of two, one */
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

/* Exactly `n` digits at `*cursor`, which moves behind them. */
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

/* The time zone behind the seconds: nothing, 'Z', or "+hh:mm". */
static bool take_zone(const char **cursor, const char *end, int64_t *offset_s) {
    *offset_s = 0;
    if (*cursor == end || take_char(cursor, end, "Z")) {
        return *cursor == end;
    }
    int64_t sign = **cursor == '-' ? -1 : 1, hours, minutes;
    if (!take_char(cursor, end, "+-") || !take_digits(cursor, end, 2, &hours) ||
        !take_char(cursor, end, ":") || !take_digits(cursor, end, 2, &minutes) || hours > 14 ||
        minutes > 59) {
        return false;
    }
    *offset_s = sign * (hours * 3600 + minutes * 60);
    return *cursor == end;
}

bool field_date_ns(const char *text, size_t length, int64_t *out) {
    const char *cursor = text, *end = text + length;
    int64_t year, month, day, hour, minute, second, fraction_ns = 0, offset_s;
    if (!take_digits(&cursor, end, 4, &year) || !take_char(&cursor, end, "-") ||
        !take_digits(&cursor, end, 2, &month) || !take_char(&cursor, end, "-") ||
        !take_digits(&cursor, end, 2, &day) || !take_char(&cursor, end, " T") ||
        !take_digits(&cursor, end, 2, &hour) || !take_char(&cursor, end, ":") ||
        !take_digits(&cursor, end, 2, &minute) || !take_char(&cursor, end, ":") ||
        !take_digits(&cursor, end, 2, &second)) {
        return false;
    }
    /* Up to 2100, so that the sum fits. */
    if (year < 1970 || year > 2100 || month < 1 || month > 12 || day < 1 ||
        day > days_in_month(year, month) || hour > 23 || minute > 59 || second > 59) {
        return false;
    }
    if (take_char(&cursor, end, ".")) {
        const char *digits = cursor;
        while (cursor < end && is_digit(*cursor)) {
            cursor++;
        }
        if (cursor == digits ||
            !read_fraction_ns(digits, (size_t)(cursor - digits), ns_per_s, &fraction_ns)) {
            return false;
        }
    }
    if (!take_zone(&cursor, end, &offset_s)) {
        return false;
    }
    int64_t seconds =
        days_from_civil(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - offset_s;
    *out = seconds * ns_per_s + fraction_ns;
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
