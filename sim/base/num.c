#include "sim/base/num.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool num_u64(const char *text, uint64_t max, uint64_t *out) {
    if (!is_digit(text[0])) {
        return false;
    }
    enum { SAFE_DIGITS = 19 }; /* as many are no more than UINT64_MAX */
    uint64_t value = 0;
    const char *c = text;
    for (; is_digit(*c) && c < text + SAFE_DIGITS; c++) {
        value = value * 10 + (uint64_t)(*c - '0');
    }
    for (; *c != '\0'; c++) {
        if (!is_digit(*c)) {
            return false;
        }
        uint64_t digit = (uint64_t)(*c - '0');
        if (value > UINT64_MAX / 10 || (value == UINT64_MAX / 10 && digit > UINT64_MAX % 10)) {
            return false;
        }
        value = value * 10 + digit;
    }
    if (value > max) {
        return false;
    }
    *out = value;
    return true;
}

/* Both the digits and the power of ten are exact as doubles, so that their quotient is the nearest
 * double, as strtod's. */
const char *num_plain(const char *text, double *out) {
    static const double powers[] = {1,   1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    enum { MOST_DIGITS = 15 };
    int64_t digits = 0;
    int n = 0, n_after = 0;
    bool has_point = false;
    for (; is_digit(*text) || (*text == '.' && n > 0 && !has_point); text++) {
        if (*text == '.') {
            has_point = true;
            continue;
        }
        n_after += has_point;
        if (++n > MOST_DIGITS) {
            return NULL;
        }
        digits = digits * 10 + (*text - '0');
    }
    *out = (double)digits / powers[n_after];
    return n > 0 ? text : NULL;
}

/* Reads a decimal prefix; `*rest` points after it. */
static bool decimal_prefix(const char *text, double *out, const char **rest) {
    size_t length = strspn(text, "0123456789+-.eE");
    if (length == 0 || length > 63 || text[0] == 'e' || text[0] == 'E') {
        return false;
    }
    char digits[64];
    memcpy(digits, text, length);
    digits[length] = '\0';
    char *end;
    errno = 0;
    double value = strtod(digits, &end);
    if (end == digits || *end != '\0' || !isfinite(value)) {
        return false;
    }
    *out = value;
    *rest = text + length;
    return true;
}

const char *num_decimal(const char *text, double *out) {
    const char *rest = num_plain(text, out);
    return rest != NULL || decimal_prefix(text, out, &rest) ? rest : NULL;
}

bool num_f64(const char *text, double *out) {
    double value;
    const char *rest = num_plain(text, &value);
    if ((rest == NULL || *rest != '\0') &&
        (!decimal_prefix(text, &value, &rest) || *rest != '\0')) {
        return false;
    }
    *out = value;
    return true;
}

struct scale {
    const char *family, *suffix;
    double factor;
};

static const struct scale scales[] = {
    {"bytes", "B", 1},        {"bytes", "KiB", 0x1p10}, {"bytes", "MiB", 0x1p20},
    {"bytes", "GiB", 0x1p30}, {"bytes", "KB", 1e3},     {"bytes", "MB", 1e6},
    {"bytes", "GB", 1e9},     {"ns", "ns", 1},          {"ns", "us", 1e3},
    {"ns", "ms", 1e6},        {"ns", "s", 1e9},         {"ns", "min", 60e9},
    {"ns", "h", 3600e9},
};

bool num_with_unit(const char *text, const char *unit, double *out) {
    const char *rest;
    double value;
    if (!decimal_prefix(text, &value, &rest)) {
        return false;
    }
    while (*rest == ' ') {
        rest++;
    }
    if (*rest == '\0') {
        *out = value;
        return true;
    }
    for (size_t i = 0; unit != NULL && i < sizeof scales / sizeof scales[0]; i++) {
        if (strcmp(scales[i].family, unit) == 0 && strcmp(scales[i].suffix, rest) == 0) {
            *out = value * scales[i].factor;
            return isfinite(*out);
        }
    }
    return false;
}

const char *num_format_bytes(char *text, size_t size, double bytes) {
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int i = 0;
    while (fabs(bytes) >= 1024 && i < 4) {
        bytes /= 1024;
        i++;
    }
    snprintf(text, size, "%.*g %s", fabs(bytes) >= 999.5 ? 4 : 3, bytes, names[i]);
    return text;
}

const char *num_format_ns(char *text, size_t size, double ns) {
    static const char *const names[] = {"ns", "us", "ms", "s"};
    int i = 0;
    while (fabs(ns) >= 1000 && i < 3) {
        ns /= 1000;
        i++;
    }
    snprintf(text, size, fabs(ns) < 999.5 ? "%.3g %s" : "%.0f %s", ns, names[i]);
    return text;
}
