#include "experiments/run/recorded.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/store/position_bytes.h"
#include "engine/device/device.h"
#include "sim/base/mem.h"
#include "sim/input/field.h"

struct loading {
    struct recorded *recorded;
    size_t room_arrivals, room_steps;
    char *config_text;
    int64_t n_steps; /* as the run's row says */
};

static char *copy(const char *text) {
    char *made = mem_text(text != NULL ? text : "");
    return made;
}

static int on_run(void *state, const struct stored_run *run, struct err *err) {
    struct loading *loading = state;
    if (run->damage != NULL) {
        return err_world(err, "run %" PRId64 " is damaged: %s", run->run, run->damage);
    }
    json_error_t trouble;
    loading->recorded->trace = copy(run->trace);
    loading->recorded->backend = copy(run->backend);
    loading->recorded->is_simulated = strcmp(run->backend, backend_names[BACKEND_SIM]) == 0;
    loading->recorded->trace_provenance = copy(run->trace_provenance);
    loading->recorded->summary = json_loads(run->summary, 0, &trouble);
    loading->recorded->seed = run->seed;
    loading->n_steps = run->n_steps;
    return 0;
}

/* What nobody has looked at where there is no checksum, and what replays go by. */
static bool is_sound_request(const struct request_record *r) {
    return r->prompt_tokens >= 1 && r->output_tokens >= 1 && r->arrival_ns >= 0 &&
           r->arrival_ns <= FIELD_MAX_NS;
}

static bool is_sound_step(const struct step_record *r) {
    return r->repeat >= 1 && r->n >= 1 && r->start_ns >= 0 && r->end_ns >= r->start_ns &&
           r->end_ns <= FIELD_MAX_NS && r->gpu_ns >= 0 && r->gpu_ns <= FIELD_MAX_NS &&
           r->host_ns >= 0 && r->host_ns <= FIELD_MAX_NS;
}

static int on_request(void *state, const struct request_record *record, struct err *err) {
    struct loading *loading = state;
    struct recorded *recorded = loading->recorded;
    if (!is_sound_request(record)) {
        return err_world(err,
                         "request %" PRIu64 " of run %" PRId64
                         " is damaged: its lengths or its arrival are impossible",
                         record->id, recorded->run);
    }
    /* Where nobody found anything, an older unmask need not say what was to be found. */
    bool knows = record->shared_tokens <= UINT32_MAX, finds = record->prefix_tokens > 0;
    recorded->lacks_prefixes = recorded->lacks_prefixes || (!knows && finds);
    if (recorded->n_arrivals == loading->room_arrivals) {
        loading->room_arrivals = 2 * loading->room_arrivals + 256;
        recorded->arrivals =
            mem_resized(recorded->arrivals, loading->room_arrivals, sizeof *recorded->arrivals);
    }
    recorded->arrivals[recorded->n_arrivals++] =
        (struct arrival){.arrival_ns = record->arrival_ns,
                         .id = record->id,
                         .prompt_tokens = record->prompt_tokens,
                         .output_tokens = record->output_tokens,
                         .answer_tokens = record->answer_tokens,
                         .tenant = record->tenant,
                         .prefix_tokens = knows ? (uint32_t)record->shared_tokens : 0,
                         .session = knows ? record->session : 0,
                         .shares = knows ? record->shared_with : 0,
                         .leaves = record->id + 1};
    return 0;
}

static int on_step(void *state, const struct step_record *record, struct err *err) {
    struct loading *loading = state;
    struct recorded *recorded = loading->recorded;
    if (recorded->n_steps == loading->room_steps) {
        loading->room_steps = 2 * loading->room_steps + 256;
        recorded->steps =
            mem_resized(recorded->steps, loading->room_steps, sizeof *recorded->steps);
    }
    if (!is_sound_step(record)) {
        return err_world(err,
                         "step %" PRIu64 " of run %" PRId64
                         " is damaged: its times, its repetitions or its requests are impossible",
                         record->index, recorded->run);
    }
    if (record->request_ids == NULL) {
        return err_world(err, "step %" PRIu64 " of run %" PRId64 " has no members", record->index,
                         recorded->run);
    }
    uint64_t *ids = mem_unwritten(record->n, sizeof *ids);
    uint32_t *commits = mem_unwritten(record->n, sizeof *commits);
    memcpy(ids, record->request_ids, record->n * sizeof *ids);
    memcpy(commits, record->commit_tokens, record->n * sizeof *commits);
    struct step_positions *positions = NULL;
    if (record->positions != NULL) {
        positions = mem_unwritten(1, sizeof *positions);
        *positions = positions_copied(record->positions, record->n);
    }
    recorded->steps[recorded->n_steps++] = (struct replay_step){.positions = positions,
                                                                .replica = record->replica,
                                                                .steps = record->repeat,
                                                                .n_requests = record->n,
                                                                .start_ns = record->start_ns,
                                                                .end_ns = record->end_ns,
                                                                .gpu_ns = record->gpu_ns,
                                                                .host_ns = record->host_ns,
                                                                .request_ids = ids,
                                                                .commits = commits};
    return 0;
}

static int by_arrival(const void *a, const void *b) {
    const struct arrival *x = a, *y = b;
    if (x->arrival_ns != y->arrival_ns) {
        return x->arrival_ns < y->arrival_ns ? -1 : 1;
    }
    return (x->id > y->id) - (x->id < y->id);
}

/* Steps are recorded as they end; a replay takes them as they begin. On several replicas, those
 * that begin together keep the order of the replicas, which is the order of scheduling. */
static int by_start(const void *a, const void *b) {
    const struct replay_step *x = a, *y = b;
    if (x->start_ns != y->start_ns) {
        return x->start_ns < y->start_ns ? -1 : 1;
    }
    return (x->replica > y->replica) - (x->replica < y->replica);
}

static int by_id(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Of a run that was cut short: whether who was under way is in the record. */
static int check_members(const struct store *store, const struct recorded *recorded,
                         struct err *err) {
    uint64_t *ids = mem_unwritten(recorded->n_arrivals + 1, sizeof *ids);
    bool knows_all = true;
    for (size_t i = 0; i < recorded->n_arrivals; i++) {
        ids[i] = recorded->arrivals[i].id;
    }
    qsort(ids, recorded->n_arrivals, sizeof *ids, by_id);
    for (size_t i = 0; i < recorded->n_steps; i++) {
        const struct replay_step *step = &recorded->steps[i];
        for (uint32_t j = 0; knows_all && j < step->n_requests; j++) {
            knows_all = bsearch(&step->request_ids[j], ids, recorded->n_arrivals, sizeof *ids,
                                by_id) != NULL;
        }
    }
    free(ids);
    return knows_all ? 0
                     : err_world(err,
                                 "run %" PRId64 " of %s was cut off, and an older unmask did not "
                                 "record the requests that were under way: it cannot be replayed",
                                 recorded->run, store_path(store));
}

static int load_parts(struct store *store, struct loading *loading, struct err *err) {
    struct recorded *recorded = loading->recorded;
    int status = store_load_run(store, recorded->run, on_run, loading, err);
    recorded->incomplete = json_string_value(json_object_get(recorded->summary, "incomplete"));
    if (status == 0 && recorded->summary == NULL) {
        return err_world(err, "run %" PRId64 " of %s has no summary to compare with", recorded->run,
                         store_path(store));
    }
    if (status == 0 && loading->n_steps == 0) {
        return err_usage(err,
                         "run %" PRId64 " of %s was recorded without its steps; a replay needs "
                         "--levels steps",
                         recorded->run, store_path(store));
    }
    if (status == 0) {
        status = store_check_rows(store, recorded->run, err);
    }
    if (status == 0) {
        status = store_load_config(store, recorded->run, &loading->config_text, err);
    }
    if (status == 0) {
        char name[64];
        snprintf(name, sizeof name, "configuration of run %" PRId64, recorded->run);
        status = config_parse(name, loading->config_text, strlen(loading->config_text),
                              &recorded->config, err);
    }
    if (status == 0) {
        status = store_load_requests(store, recorded->run, on_request, loading, err);
    }
    if (status == 0) {
        status = store_load_steps(store, recorded->run, on_step, loading, err);
    }
    if (status == 0 && recorded->incomplete != NULL) {
        status = check_members(store, recorded, err);
    }
    return status;
}

int recorded_load(struct store *store, int64_t run, struct recorded **out, struct err *err) {
    struct recorded *recorded = mem_zeroed(1, sizeof *recorded);
    recorded->run = run;
    struct loading loading = {.recorded = recorded};
    int status = load_parts(store, &loading, err);
    free(loading.config_text);
    if (status != 0) {
        recorded_close(recorded);
        return status;
    }
    if (recorded->n_arrivals > 0) {
        qsort(recorded->arrivals, recorded->n_arrivals, sizeof *recorded->arrivals, by_arrival);
    }
    if (recorded->n_steps > 0) {
        qsort(recorded->steps, recorded->n_steps, sizeof *recorded->steps, by_start);
    }
    /* Where somebody is told what each step says, a device looks after each. */
    recorded->unrolls =
        recorded->is_simulated || config_find(&recorded->config, "run", "statistics") == NULL;
    *out = recorded;
    return 0;
}

void recorded_close(struct recorded *recorded) {
    if (recorded == NULL) {
        return;
    }
    for (size_t i = 0; i < recorded->n_steps; i++) {
        free((void *)recorded->steps[i].request_ids);
        free((void *)recorded->steps[i].commits);
        struct step_positions *positions = (struct step_positions *)recorded->steps[i].positions;
        if (positions != NULL) {
            positions_free(positions);
            free(positions);
        }
    }
    free(recorded->steps);
    free(recorded->arrivals);
    config_fini(&recorded->config);
    free(recorded->trace);
    free(recorded->trace_provenance);
    free(recorded->backend);
    json_decref(recorded->summary);
    free(recorded);
}

static enum source_reply next_arrival(void *state, struct arrival *out, struct err *err) {
    struct recorded_reader *reader = state;
    (void)err;
    if (reader->next == reader->recorded->n_arrivals) {
        return SOURCE_END;
    }
    *out = reader->recorded->arrivals[reader->next++];
    return SOURCE_ROW;
}

struct arrival_source recorded_source(struct recorded_reader *reader) {
    return (struct arrival_source){.state = reader, .next = next_arrival};
}
