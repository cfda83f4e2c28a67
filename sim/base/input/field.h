/* A field of a table: numbers and times read strictly from text that need not end with NUL. */
#ifndef UNMASK_SIM_BASE_INPUT_FIELD_H
#define UNMASK_SIM_BASE_INPUT_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"

/* The latest time a field may name: 2^62 ns, 146 years, so that sums and differences fit. */
#define FIELD_MAX_NS (INT64_C(1) << 62)

/* One line of a file, without its line ending. */
struct line {
    const char *path;
    uint64_t number; /* from 1 */
    const char *text;
    size_t length;
    bool finished; /* a newline followed; a cut-off file ends without one */
};

/* The fields of a line between its commas; how many there are, of which `most` are kept. With
 * `is_quoted` a field may stand in quotes, which are not part of it, and within which commas and
 * pairs of quotes are text: -1 where quotes are not closed. */
struct field_span {
    const char *text;
    size_t length;
};
int field_spans(const char *line, size_t length, bool is_quoted, struct field_span fields[],
                int most);

/* The same in place, as texts, in which a pair of quotes has become one. `most` is at most
 * FIELD_MOST. */
enum { FIELD_MOST = 128 };
int field_cut(char *line, bool is_quoted, char *fields[], int most);

/* Digits only; false above UINT32_MAX. */
bool field_u32(const char *text, size_t length, uint32_t *out);

/* A time >= 0 in units of `unit_ns` (a power of ten): digits with an optional fraction are exact to
 * the nanosecond, an exponent goes through a double. False when malformed, negative or beyond
 * FIELD_MAX_NS. */
bool field_time_ns(const char *text, size_t length, int64_t unit_ns, int64_t *out);

/* A date and a time of day as tools write them, in nanoseconds since 1970-01-01 (the civil calendar
 * without leap seconds):
 *   2023-11-16 18:15:46.6805900   'T', 't' or '_' allowed for the space, '/' for '-', ',' for the
 *                                 point; 20231116T181546; without seconds these are 0
 *   16/Nov/2023:18:15:46          web servers; "Thu, 16 Nov 2023 18:15:46": HTTP and mail
 * after it nothing, "Z", "UTC" or "GMT" in either case, or an offset +02:00, +0200 or +02, with or
 * without a space before it. A number of 10, 13, 16 or 19 digits before its point is seconds,
 * milliseconds, microseconds or nanoseconds since 1970-01-01. */
bool field_date_ns(const char *text, size_t length, int64_t *out);
/* The last form alone. */
bool field_epoch_ns(const char *text, size_t length, int64_t *out);
/* What of the above a sentence says. */
#define FIELD_DATE_EXPECTED                                                                        \
    "a date and time such as 2023-11-16 18:15:46.68 (then nothing, Z, UTC, GMT or an offset "      \
    "such as +02:00), or seconds, ms, us or ns since 1970"

/* Sets "path:line: found 'text' in `column`, expected `expected`"; long text is shortened, bytes
 * outside printable ASCII show as '?'. */
int field_bad(const struct line *line, const char *text, size_t length, const char *column,
              const char *expected, struct err *err);

/* The same shortening for other sentences. Returns `out`. */
const char *field_quote(const char *text, size_t length, char *out, size_t size);

#endif
