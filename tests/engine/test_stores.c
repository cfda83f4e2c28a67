/* Places in the pool, and sessions: what a request's step reads, writes and decides. The forward
 * pass is replaced by two arrays, so that nothing but the sessions is on trial. */
#include "engine/session/members.h"
#include "tests/support/rig.h"
#include "tests/support/says.h"

enum { POOL = 1000, OWNERS = 40 };

/* Who owns each unit, by the owners' own account; UINT8_MAX: nobody. */
struct ground {
    uint8_t owner[POOL];
    int64_t first[OWNERS], size[OWNERS]; /* size 0: has none */
    int64_t used;
};

static void ground_set(struct ground *ground, uint32_t owner, uint8_t from, uint8_t to) {
    for (int64_t i = 0; i < ground->size[owner]; i++) {
        uint8_t *unit = &ground->owner[ground->first[owner] + i];
        ck_assert_uint_eq(*unit, from);
        *unit = to;
    }
}

static void ground_check(const struct ground *ground, const struct stores *stores) {
    int64_t lowest = POOL;
    uint32_t n = 0;
    for (uint32_t owner = 0; owner < OWNERS; owner++) {
        n += ground->size[owner] > 0;
        if (ground->size[owner] > 0 && ground->first[owner] < lowest) {
            lowest = ground->first[owner];
        }
    }
    ck_assert_uint_eq(stores->n, n);
    ck_assert_int_eq(stores->used, ground->used);
    ck_assert_int_eq(stores_lowest(stores), lowest);
}

static int64_t largest_gap(const struct ground *ground, int64_t floor) {
    int64_t largest = 0, run = 0;
    for (int64_t i = floor; i < POOL; i++) {
        run = ground->owner[i] == UINT8_MAX ? run + 1 : 0;
        largest = run > largest ? run : largest;
    }
    return largest;
}

static void push_all(struct ground *ground, struct stores *stores) {
    struct store_move move;
    while (stores_push(stores, &move)) {
        ck_assert_int_gt(move.to, move.from);
        ck_assert_int_eq(move.from, ground->first[move.owner]);
        ck_assert_int_eq(move.size, ground->size[move.owner]);
        ground_set(ground, move.owner, (uint8_t)move.owner, UINT8_MAX);
        ground->first[move.owner] = move.to;
        ground_set(ground, move.owner, UINT8_MAX, (uint8_t)move.owner);
    }
    ck_assert_int_eq(stores_lowest(stores), POOL - stores->used);
}

static void take_one(struct ground *ground, struct stores *stores, uint32_t owner,
                     struct rng *rng) {
    int64_t size = rig_between(rng, 1, 120), floor = rig_between(rng, 0, 1) * 300;
    int64_t gap = largest_gap(ground, floor);
    int64_t first = stores_take(stores, owner, size, floor);
    if (first < 0) {
        ck_assert_int_lt(gap, size);
        return;
    }
    ck_assert_int_ge(gap, size);
    ck_assert_int_ge(first, floor);
    ck_assert_int_le(first + size, POOL);
    ground->first[owner] = first;
    ground->size[owner] = size;
    ground->used += size;
    ground_set(ground, owner, UINT8_MAX, (uint8_t)owner);
}

TEST(places_never_overlap_and_no_unit_is_lost) {
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct rng rng = rng_stream(seed, "places");
        struct ground ground = {.used = 0};
        struct stores stores;
        int64_t most = 0;
        memset(ground.owner, 0xff, sizeof ground.owner);
        stores_open(&stores, POOL, OWNERS);
        for (int i_ = 0; i_ < 2000; i_++) {
            uint32_t owner = rig_between(&rng, 0, OWNERS - 1);
            if (rig_between(&rng, 0, 29) == 0) {
                push_all(&ground, &stores);
            } else if (ground.size[owner] == 0) {
                take_one(&ground, &stores, owner, &rng);
            } else {
                stores_give(&stores, owner);
                ground_set(&ground, owner, (uint8_t)owner, UINT8_MAX);
                ground.used -= ground.size[owner];
                ground.size[owner] = 0;
            }
            most = ground.used > most ? ground.used : most;
            ground_check(&ground, &stores);
        }
        ck_assert_int_eq(stores.most_used, most);
        stores_close(&stores);
    }
}

TEST(a_pool_is_filled_to_its_last_unit_from_the_top_down) {
    struct stores stores;
    stores_open(&stores, 100, 3);
    ck_assert_int_eq(stores_take(&stores, 0, 60, 0), 40);
    ck_assert_int_eq(stores_take(&stores, 1, 41, 0), -1);
    ck_assert_int_eq(stores_take(&stores, 1, 40, 1), -1);
    ck_assert_int_eq(stores_take(&stores, 1, 40, 0), 0);
    ck_assert_int_eq(stores_take(&stores, 2, 1, 0), -1);
    stores_give(&stores, 0);
    ck_assert_int_eq(stores_take(&stores, 2, 50, 0), 50);
    ck_assert_int_eq(stores.most_used, 100);
    stores_close(&stores);
}

enum { CANVASES = 4096, BYTES = 1 << 16 };

static struct {
    int32_t canvas[CANVASES];
    unsigned char pool[BYTES];
    uint32_t n_moves;
    int64_t held_from;
} device;

int forward_write_canvas(struct forward *forward, int64_t first, const int32_t *tokens, int64_t n,
                         struct err *err) {
    (void)forward, (void)err;
    ck_assert(first >= 0 && first + n <= CANVASES);
    memcpy(device.canvas + first, tokens, (size_t)n * sizeof *tokens);
    return 0;
}

int forward_read_canvas(struct forward *forward, int64_t first, int32_t *tokens, int64_t n,
                        struct err *err) {
    (void)forward, (void)err;
    memcpy(tokens, device.canvas + first, (size_t)n * sizeof *tokens);
    return 0;
}

int forward_clear_places(struct forward *forward, int64_t first, int64_t n, struct err *err) {
    (void)forward, (void)first, (void)n, (void)err;
    return 0;
}

/* No position here keeps anything. */
int64_t forward_place_bytes(const struct forward *forward) {
    (void)forward;
    return 0;
}

int forward_read_places(struct forward *forward, int64_t first, int64_t n, unsigned char *to,
                        struct err *err) {
    (void)forward, (void)first, (void)n, (void)to;
    return err_world(err, "no places in this test");
}

int forward_write_places(struct forward *forward, int64_t first, int64_t n,
                         const unsigned char *from, struct err *err) {
    (void)forward, (void)first, (void)n, (void)from;
    return err_world(err, "no places in this test");
}

int forward_hold(struct forward *forward, int64_t first_byte, struct err *err) {
    (void)forward, (void)err;
    device.held_from = first_byte;
    return 0;
}

int forward_move_store(struct forward *forward, int64_t to_bytes, int64_t from_bytes, int64_t bytes,
                       struct err *err) {
    (void)forward, (void)err;
    ck_assert(from_bytes >= 0 && to_bytes + bytes <= BYTES);
    memmove(device.pool + to_bytes, device.pool + from_bytes, (size_t)bytes);
    device.n_moves++;
    return 0;
}

/* No session here has host memory: none is swapped out. */
int forward_open_host(struct forward *forward, int64_t bytes, struct err *err) {
    (void)forward, (void)bytes;
    return err_world(err, "no host memory in this test");
}

void forward_close_host(struct forward *forward) {
    (void)forward;
}

void forward_move_host(struct forward *forward, int64_t to, int64_t from, int64_t bytes) {
    (void)forward, (void)to, (void)from, (void)bytes;
}

int forward_swap(struct forward *forward, const struct row_copy *copy, struct err *err) {
    (void)forward, (void)copy;
    return err_world(err, "no host memory in this test");
}

int forward_swap_wait(struct forward *forward, struct err *err) {
    (void)forward;
    return err_world(err, "no host memory in this test");
}

int64_t forward_page_bytes(const struct forward *forward) {
    (void)forward;
    return 0;
}

enum { PROMPT = 20, OUTPUT = 21, BLOCK = 8, CANVAS = PROMPT + OUTPUT };

static const struct step_limits small = {.max_requests = 4,
                                         .max_tokens = 400,
                                         .max_logit_rows = 400,
                                         .max_positions = 128,
                                         .canvas_tokens = CANVASES,
                                         .workspace_bytes = 4096,
                                         .pool_bytes = BYTES};

/* A system whose rows are 64 bytes, whatever its model. */
static struct system *small_system(const char *cache, const char *scope, const char *decoder) {
    char settings[4][64];
    snprintf(settings[0], sizeof settings[0], "cache=%s", cache);
    snprintf(settings[1], sizeof settings[1], "logit_scope=%s", scope);
    snprintf(settings[2], sizeof settings[2], "decoder=%s", decoder);
    snprintf(settings[3], sizeof settings[3], "block_tokens=%d", BLOCK);
    const char *const list[] = {settings[0], settings[1], settings[2], settings[3], NULL};
    struct system *system = rig_system("dllm-serve", "h200", true, list);
    system->row_bytes = 64;
    return system;
}

static void open_small(const struct system *system, struct sessions *sessions) {
    struct err err = {0};
    ck_assert_msg(sessions_open(sessions, system, NULL, &small, 1, &err) == 0, "%s", err.text);
    memset(&device, 0, sizeof device);
}

/* The request as the loop has it before step `step` of block `block`. */
static struct request request_at(const struct system *system, uint32_t block, uint32_t step,
                                 uint32_t masked) {
    struct request request =
        MAKE(struct request, .id = 7, .prompt_tokens = PROMPT, .output_tokens = OUTPUT,
             .canvas_tokens = CANVAS, .block_tokens = BLOCK, .steps_per_block = BLOCK,
             .state = REQUEST_RUNNING, .window.block = block,
             .window.first = PROMPT + block * BLOCK, .window.steps = step,
             .steps = block * BLOCK + step, .window.masked = masked, .commit_tokens = 1);
    uint32_t left = OUTPUT - block * BLOCK;
    request.window.length = left < BLOCK ? left : BLOCK;
    request.window.front = request.window.active = request.window.length;
    (void)cache_plan(system->cache, system->cache_state, NULL, &request);
    request.kv_rows = request.rows.held;
    request.kv_bytes = request.kv_rows * system->row_bytes;
    bool first_pass = step == 0 && request.span.queries == CANVAS;
    request.span.logit_rows = system_scope_rows(&system->settings, request.span.logit_rows, OUTPUT,
                                                window_length(&request), masked, first_pass);
    return request;
}

/* What a step must bring, said once more from the positions' point of view. */
static void check_part(const struct sessions *sessions, const struct planned_step *planned,
                       const struct step_part *part, bool shifted) {
    const struct system *system = sessions->system;
    const struct request *request = planned->requests;
    const struct span *span = &request->span;
    uint32_t block_end = window_end(request), row = 0;
    uint32_t first = span->queries == CANVAS ? 0 : window_first(request);
    uint32_t next_kept = 0;
    const char *cache = system->cache->policy.name;
    bool keeps_behind = strcmp(cache, "dual") == 0, keeps_before = strcmp(cache, "prefix") == 0;
    for (uint32_t position = first; position < first + span->queries; position++) {
        bool in_block = position >= window_first(request) && position < block_end;
        bool is_masked = members_is_masked(planned, 0, position);
        ck_assert_int_eq(part->positions[position - first], (int)position);
        bool in_scope = in_block;
        if (system->settings.logit_scope == LOGITS_QUERIES) {
            in_scope = true;
        } else if (system->settings.logit_scope == LOGITS_GENERATION && first == 0 &&
                   window_steps(request) == 0) {
            in_scope = position >= PROMPT;
        } else if (system->settings.logit_scope == LOGITS_MASKED) {
            in_scope = in_block && is_masked;
        }
        if (in_scope) {
            uint32_t query = position - first;
            ck_assert_int_eq(part->targets[row], (int)position);
            ck_assert_int_eq(part->logit_rows[row],
                             (int)(shifted && query > 0 ? query - 1 : query));
            bool decides = row >= part->decision.first_row &&
                           row < part->decision.first_row + part->decision.n_rows;
            ck_assert_int_eq(decides, in_block);
            row++;
        }
        if (part->kv_rows != NULL) {
            bool kept = position < window_first(request) || (keeps_behind && position >= block_end);
            ck_assert_int_eq(part->kv_rows[position - first], kept ? (int)next_kept : -1);
            next_kept += kept;
        }
    }
    ck_assert_uint_eq(row, span->logit_rows);
    ck_assert_int_eq(part->kv_rows != NULL, span->context == 0 && (keeps_behind || keeps_before));
    if (part->kv_rows != NULL) {
        ck_assert_int_eq(part->kv.n_rows, (int)next_kept);
    } else if (span->context > 0) {
        ck_assert_int_eq(part->kv.n_rows, (int)span->context);
    } else {
        ck_assert_int_eq(part->kv.n_rows, (int)span->pack_rows);
    }
    if (span->select_rows > 0) {
        ck_assert_uint_eq(part->block_start, window_first(request) - first);
        ck_assert_uint_eq(part->block_end, block_end - first);
    }
}

/* The store holds what is kept, at a place the kernels can read. */
static void check_store(const struct sessions *sessions, const struct request *request,
                        const struct step_part *part) {
    const struct session *session = &sessions->by_slot[0];
    if (part->kv.n_rows == 0) {
        return;
    }
    int64_t bytes = part->kv.n_rows * sessions->system->row_bytes;
    ck_assert_int_eq(part->kv.first * graph_element_bytes(&sessions->system->graph),
                     session->store_bytes);
    ck_assert_int_eq(part->kv.first % 8, 0);
    ck_assert_int_ge(session->store_bytes, 0);
    ck_assert_int_le(session->store_bytes + bytes, BYTES);
    ck_assert_int_le(bytes, request->kv_bytes);
}

static const char *const caches[] = {"none", "prefix", "dual", "sparse-uniform", "sparse-head"};
static const char *const scopes[] = {"queries", "generation", "block", "masked"};

/* Every step of the first two blocks and of the last, shorter one; every second position of a
 * block is committed as the steps go on. */
static void check_sessions(struct system *system, bool shifted) {
    struct sessions sessions;
    open_small(system, &sessions);
    struct members members;
    members_open(&members, &sessions);
    struct err err = {0};
    struct request request = request_at(system, 0, 0, BLOCK);
    int status = sessions_admit(&sessions, 0, &request, NULL, NULL, &err);
    ck_assert_msg(status == 0, "%s", err.text);
    for (uint32_t block = 0; block < 3; block++) {
        uint32_t length = OUTPUT - block * BLOCK < BLOCK ? OUTPUT - block * BLOCK : BLOCK;
        uint8_t masked[BLOCK], all[BLOCK], commit[BLOCK] = {0};
        const struct planned_block flags = {
            .masked = masked, .run = all, .keep = all, .outcome = commit};
        memset(masked, 1, sizeof masked);
        memset(all, 1, sizeof all);
        for (uint32_t step = 0; step < length; step++) {
            request = request_at(system, block, step, length - step);
            const struct span *span = &request.span;
            struct step_shape shape;
            shape_clear(&shape);
            shape.n_spans = 1;
            shape.spans = &span;
            shape_add(shape.sym, span, 1);
            uint32_t slot = 0;
            struct planned_step planned_step =
                MAKE(struct planned_step, .shape = &shape, .requests = &request, .slots = &slot,
                     .n_slots = 1, .blocks = &flags);
            struct placement placement = {.peak_bytes = 1024};
            struct step planned;
            status = members_plan(&members, &planned_step, NULL, &placement, &planned, &err);
            ck_assert_msg(status == 0, "%s", err.text);
            check_part(&sessions, &planned_step, planned.parts, shifted);
            check_store(&sessions, &request, planned.parts);
            ck_assert_uint_eq(planned.parts->decision.take, 1);
            uint32_t rows[BLOCK];
            ck_assert_uint_eq(members_masked_rows(&members, 0, rows), length - step);
            uint8_t committed[CANVAS] = {0};
            committed[rows[(length - step) / 2]] = 1;
            members_settle(&members, committed);
            uint32_t count = 0;
            members_count(&planned_step, &count);
            ck_assert_uint_eq(count, 1);
            for (uint32_t i = 0; i < length; i++) {
                masked[i] = masked[i] && !commit[i];
                commit[i] = 0;
            }
        }
    }
    sessions_release(&sessions, 0);
    ck_assert_int_eq(sessions.stores.used, 0);
    ck_assert_int_eq(sessions_pool_peak_bytes(&sessions), request.kv_bytes);
    members_close(&members);
    sessions_close(&sessions);
}

TEST(steps_read_write_and_decide_what_the_policies_say) {
    for (size_t cache = 0; cache < 5; cache++) {
        for (size_t scope = 0; scope < 4; scope++) {
            struct system *system = small_system(caches[cache], scopes[scope], "fixed");
            struct model model = *system->model, *shifted = &model;
            check_sessions(system, false);
            shifted->shifted_logits = true;
            system->model = shifted;
            check_sessions(system, true);
            system_close(system);
        }
    }
}

TEST(prompts_are_drawn_by_seed_and_request_and_never_hold_the_mask) {
    struct system *system = small_system("none", "block", "fixed");
    struct model few = *system->model;
    few.vocab = 4;
    few.mask_token = 2;
    system->model = &few;
    struct sessions sessions;
    open_small(system, &sessions);
    struct err err = {0};
    struct request request = request_at(system, 0, 0, BLOCK);
    int32_t first[PROMPT], given[PROMPT], output[OUTPUT];
    uint32_t seen[4] = {0};
    for (uint32_t slot = 0; slot < 4; slot++) {
        request.id = slot / 2; /* slots 0 and 1 hold the same request */
        ck_assert_int_eq(sessions_admit(&sessions, slot, &request, NULL, NULL, &err), 0);
        const int32_t *canvas = device.canvas + sessions.by_slot[slot].canvas;
        for (int i = 0; i < CANVAS; i++) {
            ck_assert_int_eq(canvas[i] == 2, i >= PROMPT);
            seen[canvas[i]] += i < PROMPT;
        }
        if (slot == 1) {
            ck_assert_mem_eq(canvas, first, sizeof first);
        } else if (slot == 2) {
            ck_assert_mem_ne(canvas, first, sizeof first);
        }
        memcpy(first, canvas, sizeof first);
    }
    ck_assert(seen[0] > 0 && seen[1] > 0 && seen[2] == 0 && seen[3] > 0);
    sessions_release(&sessions, 3);
    for (int i = 0; i < PROMPT; i++) {
        given[i] = i % 4;
    }
    ck_assert_int_eq(sessions_admit(&sessions, 3, &request, given, NULL, &err), 0);
    ck_assert_mem_eq(device.canvas + sessions.by_slot[3].canvas, given, sizeof given);
    ck_assert_int_eq(sessions_read(&sessions, 3, output, &err), 0);
    ck_assert_int_eq(output[0], 2);
    sessions_close(&sessions);
    system_close(system);
}

TEST(a_full_pool_moves_stores_with_their_rows_and_says_when_it_is_full) {
    struct system *system = small_system("dual", "block", "fixed");
    struct sessions sessions;
    open_small(system, &sessions);
    struct err err = {0};
    struct request requests[4];
    /* Three of a third each; the middle one leaves, then the first: two gaps that are none. */
    for (uint32_t slot = 0; slot < 4; slot++) {
        requests[slot] = request_at(system, 0, 0, BLOCK);
        requests[slot].kv_bytes = BYTES / 4 / 64 * 64;
        ck_assert_int_eq(sessions_admit(&sessions, slot, &requests[slot], NULL, NULL, &err), 0);
        memset(device.pool + sessions.by_slot[slot].store_bytes, 'a' + (int)slot,
               (size_t)requests[slot].kv_bytes);
    }
    sessions_release(&sessions, 0);
    sessions_release(&sessions, 2);
    requests[0].kv_bytes = BYTES / 2;
    ck_assert_int_eq(sessions_admit(&sessions, 0, &requests[0], NULL, NULL, &err), 0);
    ck_assert_uint_gt(device.n_moves, 0);
    for (uint32_t slot = 1; slot < 4; slot += 2) {
        for (int64_t i = 0; i < requests[slot].kv_bytes; i++) {
            ck_assert_int_eq(device.pool[sessions.by_slot[slot].store_bytes + i], 'a' + (int)slot);
        }
    }
    ck_assert_int_eq(sessions_admit(&sessions, 2, &requests[2], NULL, NULL, &err), ERR_WORLD);
    ASSERT_SAYS(err.text, "the pool of cached rows is full: 16 KiB wanted, 0 B left");
    sessions_close(&sessions);
    system_close(system);
}

TEST(stores_are_pushed_out_of_the_way_of_a_shared_workspace) {
    struct system *system = small_system("dual", "block", "fixed");
    struct step_limits shared = small;
    shared.shares_pool = true;
    struct sessions sessions;
    struct err err = {0};
    ck_assert_int_eq(sessions_open(&sessions, system, NULL, &shared, 1, &err), 0);
    struct members members;
    members_open(&members, &sessions);
    memset(&device, 0, sizeof device);
    struct request requests[2] = {request_at(system, 0, 0, BLOCK), request_at(system, 0, 0, BLOCK)};
    const struct span *span = &requests[1].span;
    requests[0].kv_bytes = BYTES / 2;
    requests[1].kv_bytes = BYTES / 4;
    for (uint32_t slot = 0; slot < 2; slot++) {
        ck_assert_int_eq(sessions_admit(&sessions, slot, &requests[slot], NULL, NULL, &err), 0);
    }
    ck_assert_int_eq(device.held_from, BYTES / 4);
    sessions_release(&sessions, 0);
    struct step_shape shape;
    shape_clear(&shape);
    shape.n_spans = 1;
    shape.spans = &span;
    shape_add(shape.sym, span, 1);
    uint32_t slot = 1;
    struct planned_step planned_step = {
        .shape = &shape, .requests = requests, .slots = &slot, .n_slots = 1};
    struct placement placement = {.peak_bytes = BYTES / 4};
    struct step planned;
    ck_assert_int_eq(members_plan(&members, &planned_step, NULL, &placement, &planned, &err), 0);
    ck_assert_uint_eq(device.n_moves, 0);
    placement.peak_bytes = BYTES / 4 * 3;
    ck_assert_int_eq(members_plan(&members, &planned_step, NULL, &placement, &planned, &err), 0);
    ck_assert_uint_eq(device.n_moves, 1);
    ck_assert_int_eq(sessions.by_slot[1].store_bytes, BYTES / 4 * 3);
    ck_assert_int_eq(device.held_from, BYTES / 4 * 3);
    placement.peak_bytes = BYTES / 4 * 3 + 1;
    ck_assert_int_eq(members_plan(&members, &planned_step, NULL, &placement, &planned, &err),
                     ERR_WORLD);
    sessions_release(&sessions, 1);
    planned_step.n_slots = shape.n_spans = 0;
    placement.peak_bytes = BYTES;
    ck_assert_int_eq(members_plan(&members, &planned_step, NULL, &placement, &planned, &err), 0);
    ck_assert_int_eq(device.held_from, BYTES);
    members_close(&members);
    sessions_close(&sessions);
    system_close(system);
}

TEST(what_exceeds_the_limits_is_refused) {
    struct system *system = small_system("none", "queries", "threshold");
    struct sessions sessions;
    open_small(system, &sessions);
    struct members members;
    members_open(&members, &sessions);
    struct err err = {0};
    struct request requests[11];
    uint32_t slots[11];
    const struct span *spans[11];
    struct step_shape shape;
    shape_clear(&shape);
    for (uint32_t i = 0; i < 11; i++) {
        requests[i] = request_at(system, 0, 0, BLOCK);
        slots[i] = i;
        spans[i] = &requests[i].span;
        shape_add(shape.sym, spans[i], 1);
        if (i < 4) {
            ck_assert_int_eq(sessions_admit(&sessions, i, &requests[i], NULL, NULL, &err), 0);
        }
    }
    shape.spans = spans;
    struct planned_step planned_step = {
        .shape = &shape, .requests = requests, .slots = slots, .n_slots = 5};
    struct placement placement = {.peak_bytes = 0};
    struct step planned;
    ck_assert_int_eq(members_plan(&members, &planned_step, NULL, &placement, &planned, &err),
                     ERR_USAGE);
    planned_step.n_slots = shape.n_spans = 4;
    ck_assert_int_eq(members_plan(&members, &planned_step, NULL, &placement, &planned, &err), 0);
    ck_assert(planned.parts[0].decision.take == 0 && planned.parts[0].decision.n_rows == BLOCK);
    ck_assert_double_eq_tol((double)planned.parts[0].decision.threshold, 0.9, 1e-6);
    requests[3].span.queries = 400; /* no token budget allows it */
    ck_assert_int_eq(members_plan(&members, &planned_step, NULL, &placement, &planned, &err),
                     ERR_USAGE);
    requests[4].canvas_tokens = 129;
    ck_assert_int_eq(sessions_admit(&sessions, 4, &requests[4], NULL, NULL, &err), ERR_USAGE);
    members_close(&members);
    sessions_close(&sessions);
    system_close(system);
}

SUITE("stores")
