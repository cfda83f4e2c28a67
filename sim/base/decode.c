#include "sim/base/decode.h"

#include <stdlib.h>

#include "sim/base/mem.h"

void decode_positions_init(struct decode_positions *positions, uint32_t most) {
    *positions = (struct decode_positions){.masked = mem_zeroed(most, 1),
                                           .run = mem_zeroed(most, 1),
                                           .keep = mem_zeroed(most, 1),
                                           .outcome = mem_zeroed(most, 1),
                                           .seen = mem_zeroed(most, 1),
                                           .token = mem_zeroed(most, sizeof(int32_t)),
                                           .confidence = mem_zeroed(most, sizeof(float)),
                                           .margin = mem_zeroed(most, sizeof(float)),
                                           .entropy = mem_zeroed(most, sizeof(float)),
                                           .before = mem_zeroed(most, sizeof(float)),
                                           .after = mem_zeroed(most, sizeof(float))};
}

void decode_positions_fini(struct decode_positions *positions) {
    void *const arrays[] = {positions->masked,  positions->run,    positions->keep,
                            positions->outcome, positions->seen,   positions->token,
                            positions->margin,  positions->before, positions->confidence,
                            positions->after,   positions->entropy};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        free(arrays[i]);
    }
}
