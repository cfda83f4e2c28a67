/* Which memory is mapped at which addresses of a device: what was opened, where it is mapped, and
 * the refusals that are the same on every device. Each device allocates and maps by itself. */
#ifndef UNMASK_KERNELS_DEVICE_MAPPED_H
#define UNMASK_KERNELS_DEVICE_MAPPED_H

#include <stdint.h>
#include <stdlib.h>

#include "kernels/device.h"

struct device_handle {
    struct device_handle *next;
    int64_t bytes;
    unsigned char *at; /* NULL: it is not mapped */
    uint64_t memory;   /* the device's own name for it */
};

struct mapped_range {
    struct mapped_range *next;
    unsigned char *at;
    int64_t bytes;
};

struct mapped {
    int64_t granule_bytes;
    struct mapped_range *ranges;
    struct device_handle *handles;
};

/* The next three: why the call is refused; NULL: it is not. */
static inline const char *mapped_refuses_size(const struct mapped *mapped, int64_t bytes) {
    return bytes > 0 && bytes % mapped->granule_bytes == 0
               ? NULL
               : "a size that is no multiple of the granule";
}

static inline const char *mapped_refuses_map(const struct mapped *mapped,
                                             const struct device_handle *handle, const void *at) {
    const unsigned char *first = (const unsigned char *)at;
    const struct mapped_range *range = mapped->ranges;
    while (range != NULL && (first < range->at || first - range->at > range->bytes ||
                             handle->bytes > range->bytes - (first - range->at))) {
        range = range->next;
    }
    if (handle->at != NULL) {
        return "mapping what is mapped";
    }
    if (range == NULL || (first - range->at) % mapped->granule_bytes != 0) {
        return "mapping to addresses that were not reserved";
    }
    for (const struct device_handle *h = mapped->handles; h != NULL; h = h->next) {
        if (h->at != NULL && h->at < first + handle->bytes && first < h->at + h->bytes) {
            return "mapping to addresses that have memory";
        }
    }
    return NULL;
}

static inline const char *mapped_refuses_allow(const struct mapped *mapped, const void *at,
                                               int64_t bytes) {
    const unsigned char *first = (const unsigned char *)at;
    int64_t found_bytes = 0;
    for (const struct device_handle *h = mapped->handles; h != NULL; h = h->next) {
        if (h->at != NULL && h->at >= first && h->at + h->bytes <= first + bytes) {
            found_bytes += h->bytes;
        }
    }
    return found_bytes == bytes ? NULL : "allowing addresses without memory";
}

/* Both NULL when there is no host memory. */
static inline struct mapped_range *mapped_add_range(struct mapped *mapped, int64_t bytes) {
    struct mapped_range *range = (struct mapped_range *)calloc(1, sizeof *range);
    if (range != NULL) {
        range->next = mapped->ranges;
        range->bytes = bytes;
        mapped->ranges = range;
    }
    return range;
}

static inline struct device_handle *mapped_add_handle(struct mapped *mapped, int64_t bytes) {
    struct device_handle *handle = (struct device_handle *)calloc(1, sizeof *handle);
    if (handle != NULL) {
        handle->next = mapped->handles;
        handle->bytes = bytes;
        mapped->handles = handle;
    }
    return handle;
}

static inline struct mapped_range *mapped_find_range(const struct mapped *mapped, const void *at) {
    struct mapped_range *range = mapped->ranges;
    while (range != NULL && range->at != (const unsigned char *)at) {
        range = range->next;
    }
    return range;
}

static inline void mapped_forget_range(struct mapped *mapped, struct mapped_range *range) {
    struct mapped_range **at = &mapped->ranges;
    while (*at != range) {
        at = &(*at)->next;
    }
    *at = range->next;
    free(range);
}

static inline void mapped_forget_handle(struct mapped *mapped, struct device_handle *handle) {
    struct device_handle **at = &mapped->handles;
    while (*at != handle) {
        at = &(*at)->next;
    }
    *at = handle->next;
    free(handle);
}

#endif
