/* Bytes that are put together: an event of a stream, without an allocation for each. */
#ifndef UNMASK_EXPERIMENTS_SERVE_BYTES_H
#define UNMASK_EXPERIMENTS_SERVE_BYTES_H

#include <stddef.h>
#include <stdint.h>

struct bytes {
    char *at; /* [n], owned; room for `room`, and kept when n is set to 0 */
    size_t n, room;
};

void bytes_free(struct bytes *bytes);
void bytes_add(struct bytes *bytes, const void *what, size_t n);
void bytes_text(struct bytes *bytes, const char *text);
void bytes_number(struct bytes *bytes, int64_t number);
/* As a string of JSON, in quotes: text[0..n) is UTF-8. */
void bytes_json(struct bytes *bytes, const char *text, size_t n);

#endif
