#include "experiments/run/sweep/handed.h"

#include <stddef.h>
#include <stdlib.h>

#include "analysis/summary_output.h"
#include "sim/base/mem.h"

/* The facts that are columns of their own (store_record.c). */
static const size_t texts_at[] = {
    offsetof(struct run_facts, system),       offsetof(struct run_facts, model),
    offsetof(struct run_facts, gpu),          offsetof(struct run_facts, profile),
    offsetof(struct run_facts, profile_kind), offsetof(struct run_facts, backend),
    offsetof(struct run_facts, trace),        offsetof(struct run_facts, trace_provenance),
    offsetof(struct run_facts, config),
};
enum { N_TEXTS = sizeof texts_at / sizeof texts_at[0] };

struct handed {
    struct recorder *recorder;
    struct run_facts facts;
    char *texts[N_TEXTS], *summary;
    json_t *identity;
};

static const char **text_at(struct run_facts *facts, size_t i) {
    return (const char **)((char *)facts + texts_at[i]);
}

void handed_put(const struct composition *composition, const struct recorder *recorder,
                struct parcel *out) {
    struct run_facts facts = composition->facts;
    struct err ignored = {0};
    json_t *object = NULL;
    (void)summary_json(&composition->summary, &facts, &object, &ignored);
    char *summary = summary_json_text(object, 0);
    for (size_t i = 0; i < N_TEXTS; i++) {
        parcel_put_text(out, *text_at(&facts, i));
    }
    parcel_put(out, &facts.seed, sizeof facts.seed);
    parcel_put_json(out, facts.identity);
    parcel_put_text(out, summary);
    recorder_put(recorder, out);
    json_decref(object);
    free(summary);
}

struct handed *handed_take(struct store *store, enum store_level level, struct parcel *in) {
    struct handed *handed = mem_zeroed(1, sizeof *handed);
    handed->facts = run_facts_unknown();
    for (size_t i = 0; i < N_TEXTS; i++) {
        handed->texts[i] = parcel_take_text(in);
        *text_at(&handed->facts, i) = handed->texts[i];
    }
    parcel_take(in, &handed->facts.seed, sizeof handed->facts.seed);
    handed->identity = parcel_take_json(in);
    handed->facts.identity = handed->identity;
    handed->summary = parcel_take_text(in);
    handed->recorder = recorder_open(store, &handed->facts, NULL, level, false);
    recorder_take(handed->recorder, in);
    return handed;
}

void handed_close(struct handed *handed) {
    if (handed == NULL) {
        return;
    }
    recorder_close(handed->recorder);
    json_decref(handed->identity);
    for (size_t i = 0; i < N_TEXTS; i++) {
        free(handed->texts[i]);
    }
    free(handed->summary);
    free(handed);
}

struct recording handed_recording(const struct handed *handed) {
    return (struct recording){
        .recorder = handed->recorder, .text = handed->summary, .facts = &handed->facts};
}

size_t handed_bytes(const struct handed *handed) {
    return handed != NULL ? recorder_bytes(handed->recorder) : 0;
}
