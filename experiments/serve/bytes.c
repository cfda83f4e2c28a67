#include "experiments/serve/bytes.h"

#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"

void bytes_free(struct bytes *bytes) {
    free(bytes->at);
    *bytes = (struct bytes){0};
}

void bytes_add(struct bytes *bytes, const void *what, size_t n) {
    if (bytes->n + n > bytes->room) {
        bytes->room = 2 * (bytes->n + n);
        bytes->at = mem_resized(bytes->at, bytes->room, 1);
    }
    if (n > 0) {
        memcpy(bytes->at + bytes->n, what, n);
        bytes->n += n;
    }
}

void bytes_text(struct bytes *bytes, const char *text) {
    bytes_add(bytes, text, strlen(text));
}

void bytes_number(struct bytes *bytes, int64_t number) {
    char digits[24];
    size_t at = sizeof digits;
    uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do {
        digits[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (number < 0) {
        digits[--at] = '-';
    }
    bytes_add(bytes, digits + at, sizeof digits - at);
}

static void add_escaped(struct bytes *bytes, unsigned char c) {
    static const char hex[] = "0123456789ABCDEF";
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *known = strchr(from, c);
    if (c != '\0' && known != NULL) {
        const char pair[] = {'\\', to[known - from]};
        bytes_add(bytes, pair, sizeof pair);
    } else {
        const char code[] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        bytes_add(bytes, code, sizeof code);
    }
}

void bytes_json(struct bytes *bytes, const char *text, size_t n) {
    size_t begin = 0;
    bytes_add(bytes, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c < ' ' || c == '"' || c == '\\') {
            bytes_add(bytes, text + begin, i - begin);
            add_escaped(bytes, c);
            begin = i + 1;
        }
    }
    bytes_add(bytes, text + begin, n - begin);
    bytes_add(bytes, "\"", 1);
}
