#include "experiments/run/recorded.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/store/position_bytes.h"
#include "engine/device/device.h"
#include "sim/base/input/field.h"
#include "sim/base/mem.h"

struct loading {
    struct recorded *recorded;
    size_t room_arrivals;
    char *config_text;
    int64_t n_steps; /* as the run's row says */
    bool wants_steps;
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

/* Checks what replays rely on, as a record without a checksum may hold anything. */
static bool is_sound_request(const struct request_record *r) {
    return r->prompt_tokens >= 1 && r->output_tokens >= 1 && r->arrival_ns >= 0 &&
           r->arrival_ns <= FIELD_MAX_NS;
}

static bool is_sound_step(const struct step_record *r) {
    return r->repeat >= 1 && r->n >= 1 && r->start_ns >= 0 && r->end_ns >= r->start_ns &&
           r->end_ns <= FIELD_MAX_NS && r->gpu_ns >= 0 && r->gpu_ns <= FIELD_MAX_NS &&
           r->host_ns >= 0 && r->host_ns <= FIELD_MAX_NS && r->swap.stall_ns >= 0 &&
           r->swap.stall_ns <= r->start_ns;
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
    /* Where no prefix was found, an older unmask need not say how much there was to find. */
    bool knows = record->shared_tokens <= UINT32_MAX, finds = record->prefix_tokens > 0;
    recorded->lacks_prefixes = recorded->lacks_prefixes || (!knows && finds);
    if (recorded->n_arrivals == loading->room_arrivals) {
        loading->room_arrivals = 2 * loading->room_arrivals + 256;
        recorded->arrivals =
            mem_resized(recorded->arrivals, loading->room_arrivals, sizeof *recorded->arrivals);
    }
    recorded->arrivals[recorded->n_arrivals++] = (struct arrival){
        .arrival_ns = record->arrival_ns,
        .id = record->id,
        .prompt_tokens = record->prompt_tokens,
        .output_tokens = record->output_tokens,
        .answer_tokens = record->answer_tokens,
        .tenant = record->tenant,
        .due_ns = record->deadline_ns > 0 ? (int64_t)record->deadline_ns - record->arrival_ns : 0,
        .priority = record->priority,
        .predicted_tokens = record->predicted_tokens,
        .prefix_tokens = knows ? (uint32_t)record->shared_tokens : 0,
        .session = knows ? record->session : 0,
        .shares = knows ? record->shared_with : 0,
        .leaves = record->id + 1,
        .follows = record->follows,
        .place = record->place,
        .sampling = {.temperature = record->temperature_millionths,
                     .top_p = record->top_p_millionths,
                     .top_k = record->top_k,
                     .seed = record->sampling_seed},
        .cancel_ns = record->reason == REJECT_CANCELLED ? record->finished_ns : 0,
        .decoded_tokens = record->state == REQUEST_DONE ? record->committed_tokens : 0};
    recorded->follows = recorded->follows || record->follows > 0;
    return 0;
}

static int by_arrival(const void *a, const void *b) {
    const struct arrival *x = a, *y = b;
    if (x->place != y->place) {
        return x->place < y->place ? -1 : 1;
    }
    if (x->arrival_ns != y->arrival_ns) {
        return x->arrival_ns < y->arrival_ns ? -1 : 1;
    }
    return (x->id > y->id) - (x->id < y->id);
}

static int by_id(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The ids of the requests, in order, and the first of a step that is not among them. */
struct known {
    uint64_t *ids;
    size_t n;
    bool lacks_one;
};

static int look_up_members(void *state, const struct step_record *record, struct err *err) {
    struct known *known = state;
    (void)err;
    for (uint32_t j = 0; record->request_ids != NULL && j < record->n; j++) {
        known->lacks_one = known->lacks_one || bsearch(&record->request_ids[j], known->ids,
                                                       known->n, sizeof *known->ids, by_id) == NULL;
    }
    return 0;
}

/* Of a run that was cut short: whether who was under way is in the record. */
static int check_members(struct store *store, const struct recorded *recorded, struct err *err) {
    struct known known = {.n = recorded->n_arrivals};
    known.ids = mem_unwritten(known.n + 1, sizeof *known.ids);
    for (size_t i = 0; i < known.n; i++) {
        known.ids[i] = recorded->arrivals[i].id;
    }
    qsort(known.ids, known.n, sizeof *known.ids, by_id);
    int status = store_load_steps_of(store, recorded->run, 0, (int64_t)recorded->n_steps,
                                     look_up_members, &known, err);
    free(known.ids);
    return status != 0 || !known.lacks_one
               ? status
               : err_world(err,
                           "run %" PRId64 " of %s was cut off, and an older unmask did not "
                           "record the requests that were under way: it cannot be replayed",
                           recorded->run, store_path(store));
}

static int note_first(void *state, const struct step_record *record, struct err *err) {
    (void)err;
    ((struct recorded *)state)->has_positions = record->positions != NULL;
    return 0;
}

/* A run of which every request was rejected has none, at any level. */
static bool has_run_steps(const json_t *summary) {
    const json_t *submissions = json_object_get(summary, "submissions");
    return submissions == NULL || json_integer_value(submissions) > 0;
}

static int load_parts(struct store *store, struct loading *loading, struct err *err) {
    struct recorded *recorded = loading->recorded;
    int status = store_load_run(store, recorded->run, on_run, loading, err);
    recorded->incomplete = json_string_value(json_object_get(recorded->summary, "incomplete"));
    if (status == 0 && recorded->summary == NULL) {
        return err_world(err, "run %" PRId64 " of %s has no summary to compare with", recorded->run,
                         store_path(store));
    }
    recorded->n_steps = loading->n_steps > 0 ? (size_t)loading->n_steps : 0;
    if (status == 0 && loading->wants_steps && recorded->n_steps == 0 &&
        has_run_steps(recorded->summary)) {
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
    if (status == 0 && loading->wants_steps) {
        status = store_load_steps_of(store, recorded->run, 0, 1, note_first, recorded, err);
    }
    if (status == 0 && loading->wants_steps && recorded->incomplete != NULL) {
        status = check_members(store, recorded, err);
    }
    return status;
}

static int load(struct store *store, int64_t run, bool wants_steps, struct recorded **out,
                struct err *err) {
    struct recorded *recorded = mem_zeroed(1, sizeof *recorded);
    recorded->run = run;
    recorded->store = store;
    struct loading loading = {.recorded = recorded, .wants_steps = wants_steps};
    int status = load_parts(store, &loading, err);
    free(loading.config_text);
    if (status != 0) {
        recorded_close(recorded);
        return status;
    }
    if (recorded->n_arrivals > 0) {
        qsort(recorded->arrivals, recorded->n_arrivals, sizeof *recorded->arrivals, by_arrival);
    }
    /* Where somebody is told what each step says, a device looks after each. */
    recorded->unrolls =
        recorded->is_simulated || config_find(&recorded->config, "run", "statistics") == NULL;
    *out = recorded;
    return 0;
}

int recorded_load(struct store *store, int64_t run, struct recorded **out, struct err *err) {
    return load(store, run, true, out, err);
}

int recorded_load_traffic(struct store *store, int64_t run, struct recorded **out,
                          struct err *err) {
    return load(store, run, false, out, err);
}

void recorded_close(struct recorded *recorded) {
    if (recorded == NULL) {
        return;
    }
    free(recorded->arrivals);
    config_fini(&recorded->config);
    free(recorded->trace);
    free(recorded->trace_provenance);
    free(recorded->backend);
    json_decref(recorded->summary);
    free(recorded);
}

/* ---- reading on ---- */

/* Steps that are read at once. */
enum { PAGE_STEPS = 256 };

/* An arrival that became known by the end of another request. */
struct follower {
    uint64_t follows;
    size_t arrival;
};

struct recorded_reader {
    const struct recorded *recorded;
    struct replay_step *first, *last; /* of the page that is read */
    size_t n_read;                    /* steps, those of the page among them */
    /* Where no arrival follows another request: the next. */
    size_t next;
    /* Else: those that follow, in the order of what they follow, and the places among the arrivals
     * of those that are known and did not arrive, the first at the top of a heap. */
    struct follower *followers;
    size_t n_followers;
    size_t *heap, n_heap;
    size_t given; /* the last that was given */
};

static int by_followed(const void *a, const void *b) {
    const struct follower *x = a, *y = b;
    return x->follows != y->follows ? (x->follows > y->follows) - (x->follows < y->follows)
                                    : (x->arrival > y->arrival) - (x->arrival < y->arrival);
}

static void push(struct recorded_reader *reader, size_t arrival) {
    size_t at = reader->n_heap++;
    for (; at > 0 && arrival < reader->heap[(at - 1) / 2]; at = (at - 1) / 2) {
        reader->heap[at] = reader->heap[(at - 1) / 2];
    }
    reader->heap[at] = arrival;
}

static size_t pop(struct recorded_reader *reader) {
    size_t first = reader->heap[0], last = reader->heap[--reader->n_heap], at = 0, below;
    while ((below = 2 * at + 1) < reader->n_heap) {
        below += below + 1 < reader->n_heap && reader->heap[below + 1] < reader->heap[below];
        if (last < reader->heap[below]) {
            break;
        }
        reader->heap[at] = reader->heap[below];
        at = below;
    }
    reader->heap[at] = last;
    return first;
}

struct recorded_reader *recorded_reader_open(const struct recorded *recorded) {
    struct recorded_reader *reader = mem_zeroed(1, sizeof *reader);
    reader->recorded = recorded;
    if (recorded->follows) {
        reader->heap = mem_unwritten(recorded->n_arrivals + 1, sizeof *reader->heap);
        reader->followers = mem_unwritten(recorded->n_arrivals + 1, sizeof *reader->followers);
        for (size_t i = 0; i < recorded->n_arrivals; i++) {
            const uint64_t follows = recorded->arrivals[i].follows;
            if (follows > 0) {
                reader->followers[reader->n_followers++] = (struct follower){follows, i};
            } else {
                push(reader, i);
            }
        }
        qsort(reader->followers, reader->n_followers, sizeof *reader->followers, by_followed);
    }
    return reader;
}

static void drop_step(struct replay_step *step) {
    struct step_positions *positions = (struct step_positions *)step->positions;
    if (positions != NULL) {
        positions_free(positions);
        free(positions);
    }
    free((void *)step->request_ids);
    free((void *)step->commits);
    free(step);
}

void recorded_reader_close(struct recorded_reader *reader) {
    if (reader == NULL) {
        return;
    }
    while (reader->first != NULL) {
        struct replay_step *step = reader->first;
        reader->first = step->next;
        drop_step(step);
    }
    free(reader->followers);
    free(reader->heap);
    free(reader);
}

static int on_step(void *state, const struct step_record *record, struct err *err) {
    struct recorded_reader *reader = state;
    const int64_t run = reader->recorded->run;
    if (!is_sound_step(record)) {
        return err_world(err,
                         "step %" PRIu64 " of run %" PRId64
                         " is damaged: its times, its repetitions or its requests are impossible",
                         record->index, run);
    }
    if (record->request_ids == NULL) {
        return err_world(err, "step %" PRIu64 " of run %" PRId64 " has no members", record->index,
                         run);
    }
    struct step_positions *positions = NULL;
    if (record->positions != NULL) {
        positions = mem_unwritten(1, sizeof *positions);
        *positions = positions_copied(record->positions, record->n);
    }
    struct replay_step *step = mem_unwritten(1, sizeof *step);
    *step = (struct replay_step){
        .positions = positions,
        .replica = record->replica,
        .steps = record->repeat,
        .n_requests = record->n,
        .start_ns = record->start_ns,
        .end_ns = record->end_ns,
        .gpu_ns = record->gpu_ns,
        .host_ns = record->host_ns,
        .swap = record->swap,
        .request_ids = mem_copied(record->request_ids, record->n * sizeof *record->request_ids),
        .commits = mem_copied(record->commit_tokens, record->n * sizeof *record->commit_tokens)};
    *(reader->first != NULL ? &reader->last->next : &reader->first) = step;
    reader->last = step;
    return 0;
}

/* A page is read in one go, so that others may write into the file between two. */
static int next_step(void *state, struct replay_step **out, struct err *err) {
    struct recorded_reader *reader = state;
    const struct recorded *recorded = reader->recorded;
    if (reader->first == NULL && reader->n_read < recorded->n_steps) {
        const size_t left = recorded->n_steps - reader->n_read;
        const size_t end = reader->n_read + (left < PAGE_STEPS ? left : PAGE_STEPS);
        int status = store_load_steps_of(recorded->store, recorded->run, (int64_t)reader->n_read,
                                         (int64_t)end, on_step, reader, err);
        if (status != 0) {
            return status;
        }
        reader->n_read = end;
    }
    *out = reader->first;
    reader->first = *out != NULL ? (*out)->next : NULL;
    return 0;
}

struct replay_record recorded_steps(struct recorded_reader *reader) {
    const struct recorded *recorded = reader->recorded;
    return (struct replay_record){.state = reader,
                                  .read = next_step,
                                  .drop = drop_step,
                                  .n_steps = recorded->n_steps,
                                  .has_positions = recorded->has_positions,
                                  .is_cut = recorded->incomplete != NULL,
                                  .decides = !recorded->is_simulated,
                                  .unrolls = recorded->unrolls,
                                  .shares_prefixes = true};
}

static enum source_reply next_arrival(void *state, struct arrival *out, struct err *err) {
    struct recorded_reader *reader = state;
    const struct recorded *recorded = reader->recorded;
    (void)err;
    if (reader->next == recorded->n_arrivals) {
        return SOURCE_END;
    }
    if (recorded->follows && reader->n_heap == 0) {
        return SOURCE_WAIT;
    }
    reader->given = recorded->follows ? pop(reader) : reader->next;
    *out = recorded->arrivals[reader->given];
    reader->next++;
    return SOURCE_ROW;
}

/* Once each, whatever a file says. */
static const size_t PUSHED = SIZE_MAX;

static void take_completion(void *state, uint64_t id, int64_t now_ns) {
    struct recorded_reader *reader = state;
    size_t low = 0, high = reader->n_followers;
    (void)now_ns;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        *(reader->followers[middle].follows < id + 1 ? &low : &high) =
            middle + (reader->followers[middle].follows < id + 1);
    }
    for (; low < reader->n_followers && reader->followers[low].follows == id + 1; low++) {
        if (reader->followers[low].arrival != PUSHED) {
            push(reader, reader->followers[low].arrival);
        }
        reader->followers[low].arrival = PUSHED;
    }
}

static void take_back(void *state, const struct arrival *row) {
    struct recorded_reader *reader = state;
    (void)row;
    push(reader, reader->given);
    reader->next--;
}

struct arrival_source recorded_source(struct recorded_reader *reader) {
    const bool follows = reader->recorded->follows;
    return (struct arrival_source){.state = reader,
                                   .next = next_arrival,
                                   .completed = follows ? take_completion : NULL,
                                   .back = follows ? take_back : NULL};
}
