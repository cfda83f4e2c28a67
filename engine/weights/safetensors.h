/* Hugging Face safetensors, read only: one file, or the shards of a checkpoint folder.
 *
 * The files are mapped, never copied. Everything their headers say is checked before any tensor is
 * handed out: its bytes lie inside its file, match its shape and type, belong to it alone, and
 * every byte of the data belongs to a tensor. Format: github.com/huggingface/safetensors, README
 * "Format".
 */
#ifndef UNMASK_ENGINE_WEIGHTS_SAFETENSORS_H
#define UNMASK_ENGINE_WEIGHTS_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/base/err.h"

/* STORED_OTHER: one of the format's other types, which nothing here reads. A checkpoint may have
 * such tensors, say buffers of positions, as long as no weight is one. */
enum stored_dtype { STORED_F32, STORED_BF16, STORED_F16, STORED_E4M3, STORED_OTHER };

/* A header is at most 100 MB long, as in the reference reader. */
enum { STORED_MAX_DIMS = 8, STORED_MAX_HEADER_BYTES = 100000000 };

struct stored_tensor {
    char *name;
    const char *file; /* for messages */
    enum stored_dtype dtype;
    const char *dtype_name; /* as the format writes it */
    int64_t element_bytes;
    uint32_t n_dims;
    int64_t shape[STORED_MAX_DIMS];
    int64_t n_elements;
    const unsigned char *data; /* little-endian, at any alignment */
};

struct stored_file {
    char *path;
    void *map; /* NULL when the bytes are the caller's */
    size_t size_bytes;
};

struct safetensors {
    struct stored_tensor *tensors; /* sorted by name */
    size_t n_tensors;
    struct stored_file *files;
    size_t n_files;
};

/* Open a .safetensors file, or a folder that holds model.safetensors.index.json with its shards,
 * or else model.safetensors. On error nothing needs releasing and `err` names file and tensor. */
int safetensors_open(const char *path, struct safetensors *out, struct err *err);

/* The same of one file's bytes, which must outlive the result; `path` is for messages. */
int safetensors_parse(const char *path, const void *bytes, size_t size_bytes,
                      struct safetensors *out, struct err *err);
void safetensors_close(struct safetensors *file);

/* NULL when there is no tensor of that name. */
const struct stored_tensor *safetensors_find(const struct safetensors *file, const char *name);

/* Elements [first, first + n) as float32; exact for all types that are read,
 * those in fp8 without their scales. */
void stored_read(const struct stored_tensor *tensor, int64_t first, int64_t n, float *out);

/* The same numbers, bit for bit, in the same type; shapes may differ. */
bool stored_equal(const struct stored_tensor *a, const struct stored_tensor *b);

/* Whether its numbers are whole ones or truth values, which no weight is. */
bool stored_is_whole(const struct stored_tensor *tensor);

/* 0 if stored_read can read the tensor; else ERR_WORLD, which names it and its type. */
int stored_check_read(const struct stored_tensor *tensor, struct err *err);

/* "[2, 3]". Returns `text`. */
const char *stored_shape_text(const int64_t *shape, uint32_t n_dims, char *text, size_t size);

#endif
