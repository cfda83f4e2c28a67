#include "sim/base/provenance.h"

#include <stdio.h>

#include "sim/base/names.h"

const char *const provenance_words[PROVENANCE_KIND_COUNT + 1] = {
    [PROVENANCE_MEASURED] = "measured",       [PROVENANCE_IMPORTED] = "imported",
    [PROVENANCE_TRANSFERRED] = "transferred", [PROVENANCE_ROOFLINE] = "roofline",
    [PROVENANCE_CALIBRATED] = "calibrated",   [PROVENANCE_ASSUMED] = "assumed",
};

struct provenance provenance_of(enum provenance_kind kind, const char *source) {
    struct provenance provenance = {.kind = kind, .share = -1};
    snprintf(provenance.source, sizeof provenance.source, "%s", source != NULL ? source : "");
    return provenance;
}

int provenance_find(const char *word) {
    return name_find(provenance_words, word);
}
