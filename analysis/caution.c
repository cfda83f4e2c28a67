#include "analysis/caution.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Schedulers that order by what is left or urgent pause none for longer at ordinary loads. */
static const double most_pause = 4; /* of the mean latency */

/* Smaller shares of the time change no result that is read to a few per cent. */
static const double least_price_share = 0.05;

static void add_offered(const struct offered *offered, struct warnings *out) {
    char load[96] = "";
    if (isfinite(offered->load)) {
        snprintf(load, sizeof load,
                 ", %.3g to %.3g times what the system serves when requests wait",
                 offered->load_low, offered->load_high);
    }
    if (offered->state == OFFERED_SATURATED) {
        warnings_add(
            out, WARNING_SATURATED, offered->served_req_s / offered->rate_req_s,
            "offered %.3g requests/s%s; served %.3g: %zu of %zu were left in the system at "
            "the last arrival, so latencies say how long the run was",
            offered->rate_req_s, load, offered->served_req_s, offered->n_left, offered->n);
    } else if (offered->state == OFFERED_UNKNOWN && offered->n > 0) {
        warnings_add(out, WARNING_SATURATION_UNKNOWN, (double)offered->n,
                     "%zu requests do not tell whether the system keeps up with %.3g requests/s%s: "
                     "latencies may say how long the run was; more --requests would tell",
                     offered->n, offered->rate_req_s, load);
    }
}

static void add_rejected(const struct summary *s, struct warnings *out) {
    if (s->rejected == 0) {
        return;
    }
    char reasons[160] = "";
    size_t used = 0;
    for (int i = REJECT_NONE + 1; i < REJECT_REASON_COUNT && used < sizeof reasons; i++) {
        if (s->rejected_by_reason[i] > 0) {
            used += (size_t)snprintf(
                reasons + used, sizeof reasons - used, "%s%s %" PRIu64, used > 0 ? ", " : "",
                reject_reason_name((uint32_t)i, s->own_reasons), s->rejected_by_reason[i]);
        }
    }
    warnings_add(out, WARNING_REJECTED, (double)s->rejected / (double)s->requests,
                 "%" PRIu64 " of %" PRIu64
                 " requests were rejected (%s): means and percentiles are of the others",
                 s->rejected, s->requests, reasons);
}

static void add_unmeasured(const struct summary *s, struct warnings *out) {
    if (s->unspoken != NULL) {
        warnings_add(out, WARNING_OBJECTIVE_UNMEASURED, (double)s->completed,
                     "no request has a %s, which the objective bounds%s: it is not met",
                     s->unspoken,
                     s->unspoken[1] == 'p' ? " (every answer ends with its first block)" : "");
    }
}

static void add_starved(const struct summary *s, struct warnings *out) {
    const double pause_s = (double)s->pause_ns / 1e9;
    if (s->completed > 0 && pause_s > most_pause * s->latency.mean) {
        warnings_add(out, WARNING_STARVED, pause_s / s->latency.mean,
                     "request %" PRIu64 " took no step for %.3g s after it had begun, %.3g times "
                     "the mean latency (%.3g s)",
                     s->pause_id, pause_s, pause_s / s->latency.mean, s->latency.mean);
    }
}

void caution_add_prices(const struct price_shares *shares, struct warnings *out) {
    double transferred = shares->by_kind[PROVENANCE_TRANSFERRED];
    double roofline = shares->by_kind[PROVENANCE_ROOFLINE];
    double assumed = shares->by_kind[PROVENANCE_ASSUMED];
    double extrapolated = shares->by_match[PROFILE_EXTRAPOLATED];
    if (transferred >= least_price_share) {
        warnings_add(out, WARNING_PRICES_TRANSFERRED, transferred,
                     "%.0f %% of the operators' time is priced by another GPU's measurements",
                     100 * transferred);
    }
    if (roofline >= least_price_share) {
        warnings_add(out, WARNING_PRICES_ROOFLINE, roofline,
                     "%.0f %% of the operators' time is priced from the data sheet",
                     100 * roofline);
    }
    if (assumed > 0) {
        warnings_add(out, WARNING_COLLECTIVES_ASSUMED, assumed,
                     "%.2g %% of the operators' time is what GPUs exchange over an unmeasured "
                     "link, by a model of its kind: assumed (unmask list collectives)",
                     100 * assumed);
    }
    if (extrapolated >= least_price_share) {
        warnings_add(out, WARNING_PRICES_EXTRAPOLATED, extrapolated,
                     "%.0f %% of the operators' time lies beyond the sizes that were measured",
                     100 * extrapolated);
    }
}

/* A process that was calibrated on this model and workload is not worth a warning. */
static void add_decisions(const struct run_decisions *decisions, struct warnings *out) {
    const struct provenance *from = &decisions->from;
    if (decisions->drawn &&
        (from->kind == PROVENANCE_ASSUMED || from->kind == PROVENANCE_TRANSFERRED)) {
        warnings_add(out, WARNING_DECISIONS_ASSUMED, (double)NAN,
                     "what each step commits is drawn from %s, which is %s%s%s%s",
                     decisions->process, provenance_words[from->kind],
                     from->source[0] != '\0' ? " (" : "", from->source,
                     from->source[0] != '\0' ? ")" : "");
    }
}

struct warnings caution_of(const struct summary *summary, const struct run_facts *facts) {
    struct warnings out = facts->warnings;
    uint64_t n_left_over = summary->rejected_by_reason[REJECT_SHUTDOWN];
    add_offered(&summary->offered, &out);
    add_rejected(summary, &out);
    add_unmeasured(summary, &out);
    add_starved(summary, &out);
    if (facts->device == NULL) { /* times that were measured rest on no price */
        caution_add_prices(&facts->price_shares, &out);
    }
    add_decisions(&facts->decisions, &out);
    if (facts->incomplete != NULL) {
        warnings_add(&out, WARNING_INCOMPLETE, (double)summary->completed, "%s", facts->incomplete);
    } else if (n_left_over > 0) {
        warnings_add(&out, WARNING_INCOMPLETE, (double)summary->completed,
                     "interrupted with %" PRIu64 " requests complete", summary->completed);
    }
    return out;
}

bool caution_is_of_summary(enum warning_code code) {
    return code == WARNING_SATURATED || code == WARNING_SATURATION_UNKNOWN ||
           code == WARNING_REJECTED || code == WARNING_OBJECTIVE_UNMEASURED ||
           code == WARNING_STARVED || code == WARNING_INCOMPLETE ||
           code == WARNING_DECISIONS_ASSUMED || code == WARNING_PRICES_TRANSFERRED ||
           code == WARNING_PRICES_ROOFLINE || code == WARNING_COLLECTIVES_ASSUMED ||
           code == WARNING_PRICES_EXTRAPOLATED;
}

json_t *caution_json(const struct warnings *warnings) {
    json_t *array = json_array();
    int failed = array == NULL;
    for (unsigned i = 0; i < warnings->n; i++) {
        const struct warning *warning = &warnings->items[i];
        json_t *value = isfinite(warning->value) ? json_real(warning->value) : json_null();
        failed |= json_array_append_new(array, json_pack("{s:s, s:o, s:s}", "code",
                                                         warning_words[warning->code], "value",
                                                         value, "text", warning->text));
    }
    if (failed) {
        json_decref(array);
        return NULL;
    }
    return array;
}

static int code_of(const json_t *warning) {
    const char *word = json_string_value(json_object_get(warning, "code"));
    return word != NULL ? warning_find(word, strlen(word)) : -1;
}

struct warnings caution_read(const json_t *summary) {
    struct warnings out = {0};
    size_t i;
    json_t *warning;
    json_array_foreach(json_object_get(summary, "warnings"), i, warning) {
        int code = code_of(warning);
        const json_t *value = json_object_get(warning, "value");
        const char *text = json_string_value(json_object_get(warning, "text"));
        if (code >= 0) {
            warnings_add(&out, (enum warning_code)code,
                         json_is_number(value) ? json_number_value(value) : (double)NAN, "%s",
                         text != NULL ? text : "");
        }
    }
    return out;
}

bool caution_has(const json_t *summary, enum warning_code code) {
    size_t i;
    json_t *warning;
    json_array_foreach(json_object_get(summary, "warnings"), i, warning) {
        if (code_of(warning) == (int)code) {
            return true;
        }
    }
    return false;
}

const char *caution_codes(const struct warnings *warnings, char *out, size_t size) {
    size_t used = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < warnings->n && used < size; i++) {
        if (i == 0 || warnings->items[i].code != warnings->items[i - 1].code) {
            used += (size_t)snprintf(out + used, size - used, "%s%s", i > 0 ? ", " : "",
                                     warning_words[warnings->items[i].code]);
        }
    }
    return out;
}

static const double least_share = 0.05; /* as of a warning (analysis/caution.c) */

/* Simulated / live - 1 under the Azure conversation trace, the best and the worst: LLaDA-8B by
 * profiles measured under load, eight runs on an H100 by an H200's and twelve on an H200 by an
 * H100's (-4.4 to +4.1 %, mean latency -13.8 to +14.1 %, by the rule of before); LLaDA-8B, SDAR-8B
 * and LLaDA2.0-mini by profiles with clocks, 87 and 129 (-6.1 to +5.2 %, -14.1 to +15.9 %;
 * experiments/gpu/results/2026-11-23-grid/transfer.txt, experiments/gpu/again.sh). */
static const double throughput_errors[] = {-0.061, 0.052};
static const double latency_errors[] = {-0.141, 0.159};

const char transferred_source[] =
    "236 live runs on H200s and H100s, each by the other's profile: throughput -6.1 to +5.2 % off, "
    "mean latency -14.1 to +15.9 %";

bool transferred_interval(const struct summary *summary, const struct run_facts *facts,
                          struct transferred *out) {
    if (facts->device != NULL ||
        !(facts->price_shares.by_kind[PROVENANCE_TRANSFERRED] >= least_share)) {
        return false;
    }
    const bool has_latency = summary->completed > 0;
    const double latency_s = has_latency ? summary->latency.mean : (double)NAN;
    *out = (struct transferred){
        .low_tok_s = summary->throughput_tok_s / (1 + throughput_errors[1]),
        .high_tok_s = summary->throughput_tok_s / (1 + throughput_errors[0]),
        .low_latency_s = latency_s / (1 + latency_errors[1]),
        .high_latency_s = latency_s / (1 + latency_errors[0]),
    };
    return true;
}
