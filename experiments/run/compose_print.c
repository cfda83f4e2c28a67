#include <inttypes.h>
#include <string.h>

#include "analysis/caution.h"
#include "experiments/run/compose.h"
#include "sim/system/system_facts.h"

static void print_rejected(const struct composition *c, FILE *out) {
    for (int reason = REJECT_NONE + 1; reason < REJECT_REASON_COUNT; reason++) {
        const struct rejected_list *list = &c->rejected[reason];
        uint64_t n = c->summary.rejected_by_reason[reason];
        if (n == 0) {
            continue;
        }
        fprintf(out, "%-13s%" PRIu64 " for %s: request", "rejected", n,
                reject_reason_names[reason]);
        for (uint32_t i = 0; i < list->n; i++) {
            fprintf(out, "%s %" PRIu64, i > 0 ? "," : "", list->ids[i]);
        }
        fprintf(out, "%s\n", n > list->n ? ", ..." : "");
    }
}

void compose_print(const struct composition *c, FILE *out) {
    char text[2048];
    print_rejected(c, out);
    if (c->settings[0] != '\0') {
        fprintf(out, "%-13s%s\n", "settings", c->settings);
    }
    fprintf(out, "%-13s%s: %s\n", c->facts.device != NULL ? "predictions from " : "prices from",
            system_profile_kind(c->system), system_profile_source(c->system));
    system_print_provenance(c->system, out);
    if (c->workload != NULL) {
        fprintf(out, "%-13s%s\n", "workload", workload_describe(c->workload, text, sizeof text));
    }
    if (c->decode != NULL) {
        const char *source = decode_trace_about(c->decode, "source");
        fprintf(out, "%-13splayed from %s, %zu requests%s%s\n", "decisions", c->decode_source.name,
                decode_trace_requests(c->decode), source[0] != '\0' ? ": " : "", source);
    } else if (c->facts.decisions.drawn && c->facts.device == NULL) {
        const struct run_decisions *decisions = &c->facts.decisions;
        fprintf(out, "%-13sdrawn by %s, %s: %s%s%s\n", "decisions", decisions->process,
                provenance_words[decisions->from.kind], decisions->from.source,
                decisions->error != NULL ? "; error " : "",
                decisions->error != NULL ? decisions->error : "");
    }
}

void compose_print_warnings(const struct composition *c, const char *about, FILE *out) {
    struct warnings warnings = caution_of(&c->summary, &c->facts);
    caution_print(&warnings, about, out);
}
