/* No plug-in: a library of the CUDA back end as `--library` takes it, whose cards do not open but
 * say which of them was asked for. */
#include <stdio.h>

#include "kernels/device.h"

static int open_none(int32_t index, enum kernel_dtype dtype, struct device **out, char *text) {
    static const char *const which[] = {"the first", "the second", "another"};
    (void)dtype;
    *out = NULL;
    snprintf(text, DEVICE_TEXT_CHARS, "%s", which[index < 2 ? index : 2]);
    return DEVICE_ABSENT;
}

const struct device_table unmask_device_cuda = {
    .abi = DEVICE_ABI, .size = sizeof unmask_device_cuda, .name = "cuda", .open = open_none};
const char unmask_cuda_build[] = "none";
