#include "sim/base/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/err.h"
#include "sim/base/output.h"

_Noreturn void mem_out(size_t bytes) {
    char text[80];
    int n = bytes == 0
                ? snprintf(text, sizeof text, "unmask: out of memory\n")
                : snprintf(text, sizeof text,
                           "unmask: out of memory: %zu more bytes are not to be had\n", bytes);
    ssize_t written = write(STDERR_FILENO, text, (size_t)n);
    (void)written;
    output_abandon();
    _exit(ERR_WORLD);
}

/* The bytes of `n` elements, at least those of one. */
static size_t bytes_of(size_t n, size_t size) {
    ASSERT(size > 0);
    if (n > SIZE_MAX / size) {
        mem_out(SIZE_MAX);
    }
    return n > 0 ? n * size : size;
}

static void *given_of(void *memory, size_t bytes) {
    if (memory == NULL) {
        mem_out(bytes);
    }
    return memory;
}

void *mem_given(void *memory) {
    return given_of(memory, 0);
}

void *mem_zeroed(size_t n, size_t size) {
    size_t bytes = bytes_of(n, size);
    return given_of(calloc(1, bytes), bytes);
}

void *mem_unwritten(size_t n, size_t size) {
    size_t bytes = bytes_of(n, size);
    return given_of(malloc(bytes), bytes);
}

void *mem_resized(void *items, size_t n, size_t size) {
    size_t bytes = bytes_of(n, size);
    return given_of(realloc(items, bytes), bytes);
}

void *mem_grown(void *items, size_t n, size_t *room, size_t size) {
    if (n < *room) {
        return items;
    }
    *room = 2 * *room + 64;
    return mem_resized(items, *room, size);
}

void *mem_copied(const void *bytes, size_t n) {
    char *copy = mem_unwritten(n + 1, 1);
    memcpy(copy, bytes, n);
    copy[n] = '\0';
    return copy;
}

char *mem_text(const char *text) {
    return mem_copied(text, strlen(text));
}

FILE *mem_stream(char **text, size_t *size) {
    return mem_given(open_memstream(text, size));
}

void mem_stream_close(FILE *stream) {
    bool failed = ferror(stream) != 0;
    if (fclose(stream) != 0 || failed) {
        mem_out(0);
    }
}
