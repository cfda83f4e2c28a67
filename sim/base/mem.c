#include "sim/base/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

/* Before what is reserved: how much of it is mapped, the head included; 0: it is allocated. */
struct reserved_head {
    _Alignas(64) size_t mapped_bytes;
};

void *mem_reserved(size_t n, size_t size) {
    const size_t least_mapped = 1 << 17, head_bytes = sizeof(struct reserved_head);
    size_t bytes = bytes_of(n, size);
    bytes = bytes <= SIZE_MAX - head_bytes ? bytes + head_bytes : SIZE_MAX;
    if (bytes < least_mapped) {
        const size_t whole = (bytes + head_bytes - 1) / head_bytes * head_bytes;
        struct reserved_head *head = given_of(aligned_alloc(head_bytes, whole), whole);
        memset(head, 0, whole);
        return head + 1;
    }
    struct reserved_head *head = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (head == MAP_FAILED) {
        mem_out(bytes);
    }
    head->mapped_bytes = bytes;
    return head + 1;
}

void mem_released(void *reserved) {
    if (reserved == NULL) {
        return;
    }
    struct reserved_head *head = (struct reserved_head *)reserved - 1;
    if (head->mapped_bytes > 0) {
        munmap(head, head->mapped_bytes);
    } else {
        free(head);
    }
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
