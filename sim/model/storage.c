#include "sim/model/storage.h"

const char *const number_words[NUMBER_TYPES + 1] = {"bf16", "f32", "fp8", "fp8-channel", NULL};

/* The matrices that products of layers read, but for the router's. */
static bool is_quantised(enum weight_slot slot) {
    switch (slot) {
    case WEIGHT_QKV:
    case WEIGHT_OUTPUT:
    case WEIGHT_GATE_UP:
    case WEIGHT_DOWN:
    case WEIGHT_EXPERTS_GATE_UP:
    case WEIGHT_EXPERTS_DOWN:
    case WEIGHT_SHARED_GATE_UP:
    case WEIGHT_SHARED_DOWN:
    case WEIGHT_CONDITIONING_GATE_UP:
    case WEIGHT_CONDITIONING_DOWN:
        return true;
    default:
        return false;
    }
}

enum number_type storage_weight(const struct storage *storage, enum weight_slot slot) {
    return (enum number_type)(slot == WEIGHT_HEAD  ? storage->head
                              : is_quantised(slot) ? storage->weights
                                                   : storage->wide);
}

enum number_type storage_input(const struct storage *storage, enum weight_slot slot) {
    return (enum number_type)(number_is_fp8(storage_weight(storage, slot)) ? storage->activations
                                                                           : storage->wide);
}
