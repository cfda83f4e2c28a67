#include "experiments/run/ranks/parcel.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/err.h"
#include "sim/base/mem.h"

void parcel_put(struct parcel *parcel, const void *bytes, size_t n) {
    if (parcel->n + n > parcel->room) {
        parcel->room = 2 * parcel->room + n + 256;
        parcel->bytes = mem_resized(parcel->bytes, parcel->room, 1);
    }
    if (n > 0) {
        memcpy(parcel->bytes + parcel->n, bytes, n);
    }
    parcel->n += n;
}

void parcel_take(struct parcel *parcel, void *bytes, size_t n) {
    ASSERT(n <= parcel->n - parcel->at);
    if (n > 0) {
        memcpy(bytes, parcel->bytes + parcel->at, n);
    }
    parcel->at += n;
}

/* A length of SIZE_MAX stands for NULL. */
void parcel_put_text(struct parcel *parcel, const char *text) {
    size_t n = text != NULL ? strlen(text) : SIZE_MAX;
    parcel_put(parcel, &n, sizeof n);
    parcel_put(parcel, text, text != NULL ? n : 0);
}

char *parcel_take_text(struct parcel *parcel) {
    size_t n;
    parcel_take(parcel, &n, sizeof n);
    if (n == SIZE_MAX) {
        return NULL;
    }
    ASSERT(n <= parcel->n - parcel->at);
    char *text = mem_copied(parcel->bytes + parcel->at, n);
    parcel->at += n;
    return text;
}

/* As its text, whose numbers have all their digits. */
void parcel_put_json(struct parcel *parcel, const json_t *value) {
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    parcel_put_text(parcel, text);
    free(text);
}

json_t *parcel_take_json(struct parcel *parcel) {
    char *text = parcel_take_text(parcel);
    json_error_t trouble;
    json_t *value = text != NULL ? json_loads(text, JSON_DECODE_ANY, &trouble) : NULL;
    free(text);
    return value;
}

void parcel_clear(struct parcel *parcel) {
    parcel->n = parcel->at = 0;
}

void parcel_fini(struct parcel *parcel) {
    free(parcel->bytes);
    *parcel = (struct parcel){.n = 0};
}
