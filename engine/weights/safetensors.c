#include "engine/weights/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/weights/truncated.h"
#include "kernels/bf16.h"
#include "kernels/fp8.h"
#include "sim/base/input/inputs.h"
#include "sim/base/input/text.h"
#include "sim/base/mem.h"

/* All types of whole bytes that the format has. */
static const struct {
    const char *name;
    int64_t bytes;
    enum stored_dtype dtype;
} dtypes[] = {
    {"F32", 4, STORED_F32},       {"BF16", 2, STORED_BF16},     {"F16", 2, STORED_F16},
    {"BOOL", 1, STORED_OTHER},    {"U8", 1, STORED_OTHER},      {"I8", 1, STORED_OTHER},
    {"U16", 2, STORED_OTHER},     {"I16", 2, STORED_OTHER},     {"U32", 4, STORED_OTHER},
    {"I32", 4, STORED_OTHER},     {"U64", 8, STORED_OTHER},     {"I64", 8, STORED_OTHER},
    {"F64", 8, STORED_OTHER},     {"C64", 8, STORED_OTHER},     {"F8_E4M3", 1, STORED_E4M3},
    {"F8_E5M2", 1, STORED_OTHER}, {"F8_E8M0", 1, STORED_OTHER},
};

enum {
    LENGTH_BYTES = 8, /* the header's length, before the header */
    NOTED_BYTES = 1 << 20,
};

bool stored_equal(const struct stored_tensor *a, const struct stored_tensor *b) {
    return a->dtype == b->dtype && a->n_elements == b->n_elements &&
           memcmp(a->data, b->data, (size_t)(a->n_elements * a->element_bytes)) == 0;
}

bool stored_is_whole(const struct stored_tensor *tensor) {
    return strspn(tensor->dtype_name, "IU") > 0 || strcmp(tensor->dtype_name, "BOOL") == 0;
}

int stored_check_read(const struct stored_tensor *tensor, struct err *err) {
    return tensor->dtype != STORED_OTHER
               ? 0
               : err_world(err,
                           "%s: tensor '%s' has dtype %s; F32, BF16, F16 and F8_E4M3 are "
                           "read",
                           tensor->file, tensor->name, tensor->dtype_name);
}

const char *stored_shape_text(const int64_t *shape, uint32_t n_dims, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "[");
    for (uint32_t i = 0; i < n_dims && used < size; i++) {
        used +=
            (size_t)snprintf(text + used, size - used, "%s%" PRId64, i > 0 ? ", " : "", shape[i]);
    }
    if (used < size) {
        snprintf(text + used, size - used, "]");
    }
    return text;
}

/* ---- values ---- */

/* IEEE half to single: exact, subnormals and infinities included. */
static float half_to_float(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u;
    uint32_t fraction = bits & 0x3ffu, wide;
    if (exponent == 0) {
        float value = (float)fraction * 0x1p-24f;
        return sign != 0 ? -value : value;
    }
    wide = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

void stored_read(const struct stored_tensor *tensor, int64_t first, int64_t n, float *out) {
    ASSERT(first >= 0 && n >= 0 && first <= tensor->n_elements - n);
    ASSERT(tensor->dtype != STORED_OTHER);
    const unsigned char *from = tensor->data + first * tensor->element_bytes;
    if (tensor->dtype == STORED_F32) {
        memcpy(out, from, (size_t)n * sizeof *out);
        return;
    }
    if (tensor->dtype == STORED_E4M3) {
        for (int64_t i = 0; i < n; i++) {
            out[i] = e4m3_to_float(from[i]);
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, sizeof bits);
        out[i] = tensor->dtype == STORED_BF16 ? bf16_to_float(bits) : half_to_float(bits);
    }
}

/* ---- one file's header ---- */

/* What is known of a file while its header is read. */
struct reading {
    const char *path;
    const unsigned char *data;
    int64_t data_bytes;
    struct safetensors *out;
    struct err *err;
};

static int read_dtype(const struct reading *r, const json_t *entry, struct stored_tensor *tensor) {
    const json_t *value = json_object_get(entry, "dtype");
    if (!json_is_string(value)) {
        return err_world(r->err, "%s: tensor '%s' has no dtype", r->path, tensor->name);
    }
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (strcmp(dtypes[i].name, json_string_value(value)) == 0) {
            tensor->dtype = dtypes[i].dtype;
            tensor->dtype_name = dtypes[i].name;
            tensor->element_bytes = dtypes[i].bytes;
            return 0;
        }
    }
    return err_world(r->err, "%s: tensor '%s' has dtype %s, which the format does not have",
                     r->path, tensor->name, json_string_value(value));
}

static int read_shape(const struct reading *r, const json_t *entry, struct stored_tensor *tensor) {
    const json_t *value = json_object_get(entry, "shape");
    if (!json_is_array(value) || json_array_size(value) > STORED_MAX_DIMS) {
        return err_world(r->err, "%s: tensor '%s' has no shape of at most %d dimensions", r->path,
                         tensor->name, STORED_MAX_DIMS);
    }
    tensor->n_dims = (uint32_t)json_array_size(value);
    tensor->n_elements = 1;
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        const json_t *dim = json_array_get(value, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0) {
            return err_world(r->err, "%s: a dimension of tensor '%s' is not a whole number >= 0",
                             r->path, tensor->name);
        }
        tensor->shape[i] = json_integer_value(dim);
        /* Below 2^60, so that the size in bytes fits as well. */
        if (tensor->shape[i] > 0 && tensor->n_elements > (INT64_C(1) << 60) / tensor->shape[i]) {
            return err_world(r->err, "%s: the shape of tensor '%s' is too large to be true",
                             r->path, tensor->name);
        }
        tensor->n_elements *= tensor->shape[i];
    }
    return 0;
}

static int read_place(const struct reading *r, const json_t *entry, struct stored_tensor *tensor) {
    const json_t *value = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(value, 0), *last = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !json_is_integer(first) || !json_is_integer(last)) {
        return err_world(r->err, "%s: tensor '%s' has no data_offsets [begin, end]", r->path,
                         tensor->name);
    }
    int64_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || begin > end || end > r->data_bytes) {
        return err_world(r->err,
                         "%s: tensor '%s' claims bytes %" PRId64 " to %" PRId64
                         " of the data, but the file holds %" PRId64 " (truncated?)",
                         r->path, tensor->name, begin, end, r->data_bytes);
    }
    int64_t bytes = tensor->n_elements * tensor->element_bytes;
    if (end - begin != bytes) {
        char shape[128];
        return err_world(r->err, "%s: tensor '%s' is %s %s, %" PRId64 " bytes, but claims %" PRId64,
                         r->path, tensor->name, tensor->dtype_name,
                         stored_shape_text(tensor->shape, tensor->n_dims, shape, sizeof shape),
                         bytes, end - begin);
    }
    tensor->data = r->data + begin;
    return 0;
}

static int read_tensor(const struct reading *r, const char *name, const json_t *entry) {
    struct stored_tensor *tensor = &r->out->tensors[r->out->n_tensors];
    *tensor = (struct stored_tensor){.name = mem_text(name), .file = r->path};
    r->out->n_tensors++;
    if (!json_is_object(entry)) {
        return err_world(r->err, "%s: the entry of tensor '%s' is not an object", r->path, name);
    }
    int status = read_dtype(r, entry, tensor);
    status = status == 0 ? read_shape(r, entry, tensor) : status;
    return status == 0 ? read_place(r, entry, tensor) : status;
}

static const unsigned char *data_end(const struct stored_tensor *tensor) {
    return tensor->data + tensor->n_elements * tensor->element_bytes;
}

/* By place, an empty tensor before what starts at the same byte. */
static int by_place(const void *a, const void *b) {
    const struct stored_tensor *x = a, *y = b;
    if (x->data != y->data) {
        return x->data < y->data ? -1 : 1;
    }
    const unsigned char *x_end = data_end(x), *y_end = data_end(y);
    return x_end != y_end ? (x_end < y_end ? -1 : 1) : strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct stored_tensor *)a)->name, ((const struct stored_tensor *)b)->name);
}

static int by_name_and_file(const void *a, const void *b) {
    int order = by_name(a, b);
    return order != 0 ? order
                      : strcmp(((const struct stored_tensor *)a)->file,
                               ((const struct stored_tensor *)b)->file);
}

/* Every byte of the data belongs to exactly one of the file's tensors, those from `first_tensor`.
 */
static int check_cover(const struct reading *r, size_t first_tensor) {
    struct stored_tensor *tensors = r->out->tensors + first_tensor;
    size_t n = r->out->n_tensors - first_tensor;
    qsort(tensors, n, sizeof *tensors, by_place);
    const unsigned char *end = r->data;
    for (size_t i = 0; i < n; i++) {
        if (tensors[i].data < end) {
            return err_world(r->err, "%s: tensors '%s' and '%s' overlap", r->path,
                             tensors[i - 1].name, tensors[i].name);
        }
        if (tensors[i].data > end) {
            return err_world(r->err, "%s: %td bytes of data before tensor '%s' belong to no tensor",
                             r->path, tensors[i].data - end, tensors[i].name);
        }
        end = data_end(&tensors[i]);
    }
    int64_t spare = r->data + r->data_bytes - end;
    if (spare > 0) {
        return err_world(r->err, "%s: the last %" PRId64 " bytes belong to no tensor", r->path,
                         spare);
    }
    return 0;
}

static int read_header(struct reading *r, const json_t *header) {
    size_t first = r->out->n_tensors, n = first + json_object_size(header);
    r->out->tensors = mem_resized(r->out->tensors, n, sizeof *r->out->tensors);
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)(uintptr_t)header, name, entry) {
        int status = strcmp(name, "__metadata__") == 0 ? 0 : read_tensor(r, name, entry);
        if (status != 0) {
            return status;
        }
    }
    return check_cover(r, first);
}

/* What the first bytes of a file say. */
static uint64_t header_bytes(const unsigned char *bytes) {
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) {
        length = length << 8 | bytes[i];
    }
    return length;
}

/* Append the tensors of one file's bytes. */
static int read_bytes(const char *path, const unsigned char *bytes, size_t size,
                      struct safetensors *out, struct err *err) {
    if (size < LENGTH_BYTES) {
        return err_world(err, "%s: %zu bytes are too few for a safetensors file", path, size);
    }
    if (text_is_foreign(path, bytes, size, err)) {
        return err_status(err);
    }
    uint64_t length = header_bytes(bytes);
    if (length > STORED_MAX_HEADER_BYTES) {
        return err_world(err, "%s: a header of %" PRIu64 " bytes is beyond the format's %d", path,
                         length, STORED_MAX_HEADER_BYTES);
    }
    if (length > size - LENGTH_BYTES) {
        return err_world(err, "%s: the header ends at byte %" PRIu64 ", but the file at %zu", path,
                         length + LENGTH_BYTES, size);
    }
    json_error_t trouble;
    json_t *header = json_loadb((const char *)bytes + LENGTH_BYTES, (size_t)length,
                                JSON_REJECT_DUPLICATES, &trouble);
    if (!json_is_object(header)) {
        json_decref(header);
        return header != NULL ? err_world(err, "%s: the header is not a JSON object", path)
                              : err_world(err, "%s: the header is not sound JSON: %s (byte %d)",
                                          path, trouble.text, trouble.position + LENGTH_BYTES);
    }
    struct reading r = {.path = path,
                        .data = bytes + LENGTH_BYTES + length,
                        .data_bytes = (int64_t)(size - LENGTH_BYTES - (size_t)length),
                        .out = out,
                        .err = err};
    int status = read_header(&r, header);
    json_decref(header);
    return status;
}

/* ---- files and folders ---- */

static struct stored_file *add_file(const char *path, struct safetensors *out) {
    out->files = mem_resized(out->files, out->n_files + 1, sizeof *out->files);
    struct stored_file *file = &out->files[out->n_files++];
    *file = (struct stored_file){.path = mem_text(path)};
    return file;
}

static int map_file(struct stored_file *file, struct err *err) {
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    struct stat facts;
    if (fd < 0 || fstat(fd, &facts) != 0) {
        int cause = errno;
        if (fd >= 0) {
            close(fd);
        }
        return err_world(err, "%s: cannot be opened: %s", file->path, strerror(cause));
    }
    if (!S_ISREG(facts.st_mode) || facts.st_size == 0) {
        close(fd);
        return err_world(err, "%s: is %s", file->path,
                         S_ISREG(facts.st_mode) ? "empty" : "not a file");
    }
    void *map = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    int cause = errno;
    close(fd);
    if (map == MAP_FAILED) {
        return err_world(err, "%s: cannot be mapped: %s", file->path, strerror(cause));
    }
    file->map = map;
    file->size_bytes = (size_t)facts.st_size;
    truncated_watch(file->path, map, file->size_bytes);
    return 0;
}

/* Weights are recognised without reading gigabytes of them: by the size of the file, its header,
 * which names every tensor, and the first and the last mebibyte of the values. `header` is the
 * header's end. */
static void note_file(const struct stored_file *file, size_t header) {
    const unsigned char *bytes = file->map;
    size_t values = file->size_bytes - header;
    size_t part = values < NOTED_BYTES ? values : NOTED_BYTES;
    uint64_t size = file->size_bytes;
    struct sha256 sha;
    char text[32], sha256[SHA256_HEX_CHARS];
    sha256_begin(&sha);
    sha256_add(&sha, text, (size_t)snprintf(text, sizeof text, "%" PRIu64 "\n", size));
    sha256_add(&sha, bytes, header + part);
    sha256_add(&sha, bytes + file->size_bytes - part, part);
    sha256_hex(&sha, sha256);
    inputs_note_digest("weights: size, header, first and last MiB", file->path, sha256);
}

static int read_file(const char *path, struct safetensors *out, struct err *err) {
    struct stored_file *file = add_file(path, out);
    int status = map_file(file, err);
    if (status != 0) {
        return status;
    }
    status = read_bytes(file->path, file->map, file->size_bytes, out, err);
    if (status == 0) {
        note_file(file, LENGTH_BYTES + (size_t)header_bytes(file->map));
    }
    return status;
}

/* Names across files are unique; sorted for safetensors_find. */
static int finish(const char *path, struct safetensors *out, struct err *err) {
    if (out->n_tensors == 0) {
        return err_world(err, "%s: holds no tensors", path);
    }
    qsort(out->tensors, out->n_tensors, sizeof *out->tensors, by_name_and_file);
    for (size_t i = 1; i < out->n_tensors; i++) {
        const struct stored_tensor *a = &out->tensors[i - 1], *b = &out->tensors[i];
        if (strcmp(a->name, b->name) == 0) {
            return err_world(err, "tensor '%s' is both in %s and in %s", a->name, a->file, b->file);
        }
    }
    return 0;
}

static bool knows_file(const struct safetensors *out, const char *path) {
    for (size_t i = 0; i < out->n_files; i++) {
        if (strcmp(out->files[i].path, path) == 0) {
            return true;
        }
    }
    return false;
}

enum { PATH_BYTES = 4096 };

/* The file a shard's name stands for; the index may not lead out of its folder. */
static int shard_path(const char *index, const char *folder, const char *name, const json_t *shard,
                      char path[PATH_BYTES], struct err *err) {
    const char *file = json_string_value(shard);
    if (file == NULL || file[0] == '\0' || file[0] == '.' || strchr(file, '/') != NULL) {
        return err_world(err, "%s: tensor '%s' is not mapped to a file of this folder", index,
                         name);
    }
    if (snprintf(path, PATH_BYTES, "%s/%s", folder, file) >= PATH_BYTES) {
        return err_world(err, "%s: the name of the file of tensor '%s' is too long", index, name);
    }
    return 0;
}

static int read_shards(const char *index, const char *folder, const json_t *map,
                       struct safetensors *out, struct err *err) {
    const char *name;
    json_t *shard;
    char path[PATH_BYTES];
    json_object_foreach((json_t *)(uintptr_t)map, name, shard) {
        int status = shard_path(index, folder, name, shard, path, err);
        if (status == 0 && !knows_file(out, path)) {
            status = read_file(path, out, err);
        }
        if (status != 0) {
            return status;
        }
    }
    int status = finish(index, out, err);
    if (status != 0) {
        return status;
    }
    json_object_foreach((json_t *)(uintptr_t)map, name, shard) {
        status = shard_path(index, folder, name, shard, path, err);
        const struct stored_tensor *tensor = safetensors_find(out, name);
        if (status == 0 && (tensor == NULL || strcmp(tensor->file, path) != 0)) {
            status = err_world(err, "%s: tensor '%s' is not in %s", index, name, path);
        }
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

static int read_index(const char *index, const char *folder, struct safetensors *out,
                      struct err *err) {
    json_t *root = json_read(index, "weights", JSON_REJECT_DUPLICATES, err);
    if (root == NULL) {
        return err_status(err);
    }
    const json_t *map = json_object_get(root, "weight_map");
    int status = json_is_object(map) ? read_shards(index, folder, map, out, err)
                                     : err_world(err, "%s: has no weight_map", index);
    json_decref(root);
    return status;
}

static int open_folder(const char *folder, struct safetensors *out, struct err *err) {
    char path[PATH_BYTES];
    static const char index[] = "model.safetensors.index.json", single[] = "model.safetensors";
    if (strlen(folder) + sizeof index + 1 > sizeof path) {
        return err_world(err, "%.64s...: the folder's name is too long", folder);
    }
    snprintf(path, sizeof path, "%s/%s", folder, index);
    if (access(path, F_OK) == 0) {
        return read_index(path, folder, out, err);
    }
    snprintf(path, sizeof path, "%s/%s", folder, single);
    if (access(path, F_OK) != 0) {
        return err_world(err, "%s: holds neither %s nor %s", folder, index, single);
    }
    int status = read_file(path, out, err);
    return status == 0 ? finish(path, out, err) : status;
}

int safetensors_open(const char *path, struct safetensors *out, struct err *err) {
    *out = (struct safetensors){0};
    struct stat facts;
    int status;
    if (stat(path, &facts) == 0 && S_ISDIR(facts.st_mode)) {
        status = open_folder(path, out, err);
    } else {
        status = read_file(path, out, err);
        status = status == 0 ? finish(path, out, err) : status;
    }
    if (status != 0) {
        safetensors_close(out);
    }
    return status;
}

int safetensors_parse(const char *path, const void *bytes, size_t size_bytes,
                      struct safetensors *out, struct err *err) {
    *out = (struct safetensors){0};
    struct stored_file *file = add_file(path, out);
    int status = read_bytes(file->path, bytes, size_bytes, out, err);
    status = status == 0 ? finish(path, out, err) : status;
    if (status != 0) {
        safetensors_close(out);
    }
    return status;
}

void safetensors_close(struct safetensors *file) {
    for (size_t i = 0; i < file->n_tensors; i++) {
        free(file->tensors[i].name);
    }
    free(file->tensors);
    for (size_t i = 0; i < file->n_files; i++) {
        if (file->files[i].map != NULL) {
            truncated_forget(file->files[i].map);
            munmap(file->files[i].map, file->files[i].size_bytes);
        }
        free(file->files[i].path);
    }
    free(file->files);
    *file = (struct safetensors){0};
}

const struct stored_tensor *safetensors_find(const struct safetensors *file, const char *name) {
    struct stored_tensor key = {.name = (char *)(uintptr_t)name};
    return bsearch(&key, file->tensors, file->n_tensors, sizeof key, by_name);
}
