#include "engine/calibrate/narrow.h"

#include "sim/base/rng.h"

enum { PIECE_BYTES = 1 << 16 };

static uint8_t byte_of(int64_t i) {
    const double u = rng_keyed(7, (uint64_t)i, 0, 0);
    const unsigned bits = (unsigned)(u * 16); /* a sign, and eighths of an octave */
    return (uint8_t)((bits & 8) << 4 | (0x34 + (bits & 7)));
}

/* A piece from the host, and then all that is there once more after it. */
int narrow_fill(const struct engine_device *device, void *at, int64_t bytes, struct err *err) {
    const struct device_table *table = device->table;
    const int64_t piece = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
    void *host = NULL;
    unsigned char *to = at;
    int status = table->allocate_host(device->device, piece, &host);
    for (int64_t i = 0; status == DEVICE_OK && i < piece; i++) {
        ((uint8_t *)host)[i] = byte_of(i);
    }
    status = status == DEVICE_OK ? table->upload(device->device, to, host, piece) : status;
    for (int64_t done = piece; status == DEVICE_OK && done < bytes; done *= 2) {
        status =
            table->copy(device->device, to + done, to, done < bytes - done ? done : bytes - done);
    }
    status = status == DEVICE_OK ? table->finish(device->device) : status;
    table->release_host(device->device, host);
    return engine_device_err(device, status, "filling memory with numbers of fp8", err);
}
