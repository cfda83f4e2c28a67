#include "sim/base/decode.h"

#include "sim/base/zeroed.h"

void decode_positions_init(struct decode_positions *positions, uint32_t most) {
    *positions = (struct decode_positions){.masked = zeroed(most, 1),
                                           .run = zeroed(most, 1),
                                           .keep = zeroed(most, 1),
                                           .commit = zeroed(most, 1),
                                           .seen = zeroed(most, 1),
                                           .token = zeroed(most, sizeof(int32_t)),
                                           .confidence = zeroed(most, sizeof(float)),
                                           .margin = zeroed(most, sizeof(float)),
                                           .entropy = zeroed(most, sizeof(float)),
                                           .before = zeroed(most, sizeof(float)),
                                           .after = zeroed(most, sizeof(float))};
}

void decode_positions_fini(struct decode_positions *positions) {
    void *const arrays[] = {positions->masked, positions->run,    positions->keep,
                            positions->commit, positions->seen,   positions->token,
                            positions->margin, positions->before, positions->confidence,
                            positions->after,  positions->entropy};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        free(arrays[i]);
    }
}
