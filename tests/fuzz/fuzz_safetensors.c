/* Any bytes as a safetensors file: refused with one sentence, or tensors that lie inside the file,
 * apart from each other, and can be read to their last element. */
#include <math.h>
#include <string.h>

#include "engine/weights/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_ends(const struct stored_tensor *tensor) {
    float value;
    if (tensor->n_elements > 0) {
        stored_read(tensor, 0, 1, &value);
        stored_read(tensor, tensor->n_elements - 1, 1, &value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct safetensors file;
    struct err err = {0};
    if (safetensors_parse("x.safetensors", data, size, &file, &err) != 0) {
        ASSERT(err.kind != ERR_NONE && err.text[0] != '\0');
        return 0;
    }
    ASSERT(err.kind == ERR_NONE);
    int64_t sum = 0;
    for (size_t i = 0; i < file.n_tensors; i++) {
        const struct stored_tensor *tensor = &file.tensors[i];
        int64_t bytes = tensor->n_elements * (tensor->dtype == STORED_F32 ? 4 : 2);
        ASSERT(tensor->data >= data && tensor->data + bytes <= data + size);
        ASSERT(i == 0 || strcmp(file.tensors[i - 1].name, tensor->name) < 0);
        ASSERT(safetensors_find(&file, tensor->name) == tensor);
        read_ends(tensor);
        sum += bytes;
    }
    ASSERT(sum <= (int64_t)size);
    safetensors_close(&file);
    return 0;
}
