#include "engine/session/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session/renoise.h"
#include "sim/base/mem.h"
#include "sim/base/num.h"
#include "sim/base/rng.h"
#include "sim/model/ranks.h"

/* ---- opening ---- */

/* Bytes between places where a store may start. */
static int64_t unit_bytes(const struct system *system) {
    return STORE_ALIGN_ELEMENTS * graph_cache_element_bytes(&system->graph);
}

/* Of exact rows. */
static int64_t page_bytes(const struct system *system) {
    return system->budget.unit_bytes / (system->budget.unit_rows / system_page_rows(system));
}

static int hold_stores(struct sessions *sessions, struct err *err);

/* The highest place of the pool, which no one's rows are moved to. */
static int take_prefixes(struct sessions *sessions, struct err *err) {
    const int64_t unit = unit_bytes(sessions->system);
    const int64_t bytes = system_prefix_bytes(sessions->system) / unit * unit;
    if (bytes == 0) {
        return 0;
    }
    sessions->prefixes_bytes = bytes;
    sessions->prefixes_byte =
        stores_take(&sessions->stores, sessions->system->settings.max_in_system, bytes, 0);
    ASSERT(sessions->prefixes_byte >= 0);
    return hold_stores(sessions, err);
}

int sessions_open(struct sessions *sessions, const struct system *system, struct forward *forward,
                  const struct step_limits *limits, uint64_t seed, struct err *err) {
    *sessions = (struct sessions){.system = system,
                                  .forward = forward,
                                  .limits = *limits,
                                  .draw_seed = rng_stream(seed, "tokens").s[0]};
    beginnings_open(&sessions->own_beginnings, rng_stream(seed, "prompts").s[0], system->model);
    sessions->beginnings = &sessions->own_beginnings;
    uint32_t n_slots = system->settings.max_in_system;
    int64_t unit = unit_bytes(system);
    sessions->by_slot = mem_reserved(n_slots, sizeof *sessions->by_slot);
    stores_open(&sessions->canvases, limits->canvas_tokens, n_slots);
    stores_open(&sessions->stores, limits->pool_bytes / unit * unit, n_slots + 1);
    stores_open(&sessions->swapped, system->settings.swap_host_bytes, n_slots);
    if (system->settings.swap_host_bytes > 0 &&
        forward_open_host(forward, system->settings.swap_host_bytes, err) != 0) {
        return err_status(err);
    }
    if (sessions_are_exact(sessions)) {
        const struct budget *budget = &system->budget;
        const int32_t parts = (int32_t)(budget->unit_rows / system_page_rows(system));
        const int32_t n = (int32_t)(budget->pool_bytes / page_bytes(system));
        const int32_t most = (int32_t)ceil_div(limits->max_positions, budget->unit_rows) * parts;
        pages_open(&sessions->pages, n, n_slots, most);
        if (system->settings.prefix_caching) {
            shared_pages_open(&sessions->shared, n, n_slots, most);
        }
    }
    sessions->tokens = mem_zeroed(limits->max_positions, sizeof *sessions->tokens);
    if (system->credit_slots > 0 || system->settings.iteration == ITERATION_SMOOTH ||
        system->model->conditioning_ffn > 0) {
        sessions->free_places = mem_zeroed(limits->max_requests, sizeof *sessions->free_places);
        for (uint32_t i = limits->max_requests; i > 0; i--) {
            sessions->free_places[sessions->n_free_places++] = i - 1;
        }
        sessions->places_bytes =
            settings_window_tokens(&system->settings) * forward_place_bytes(forward);
    }
    if (sessions->places_bytes > 0 && system->settings.swap_host_bytes > 0) {
        sessions->swapped_places = mem_reserved(n_slots, (size_t)sessions->places_bytes);
    }
    /* Pages lie all over the pool. */
    return sessions_are_exact(sessions) ? forward_hold(forward, 0, err)
                                        : take_prefixes(sessions, err);
}

void sessions_close(struct sessions *sessions) {
    stores_close(&sessions->canvases);
    stores_close(&sessions->stores);
    stores_close(&sessions->swapped);
    if (sessions->system->settings.swap_host_bytes > 0) {
        forward_close_host(sessions->forward);
    }
    pages_close(&sessions->pages);
    shared_pages_close(&sessions->shared);
    beginnings_close(&sessions->own_beginnings);
    mem_released(sessions->by_slot);
    mem_released(sessions->swapped_places);
    free(sessions->tokens);
    free(sessions->free_places);
    *sessions = (struct sessions){0};
}

/* ---- admission ---- */

/* What a position holds before any pass. */
static int32_t undecided_token(const struct sessions *sessions, uint64_t id, uint32_t position) {
    const struct system *system = sessions->system;
    if (!system->renoises) {
        return (int32_t)system->model->mask_token;
    }
    const struct renoise *numbers = system->decoder_state;
    return renoise_first_token(numbers->seed, id, position, model_whole_vocab(system->model));
}

static int write_canvas(struct sessions *sessions, const struct session *session,
                        const struct request *request, const int32_t *prompt, struct err *err) {
    const struct beginning *beginning = &session->beginning;
    if (prompt != NULL) {
        memcpy(sessions->tokens, prompt, request->prompt_tokens * sizeof *prompt);
    } else {
        beginnings_read(sessions->beginnings, request->id,
                        beginning->contents != NULL ? beginning : NULL, request->prompt_tokens,
                        sessions->tokens);
    }
    for (uint32_t i = request->prompt_tokens; i < request->canvas_tokens; i++) {
        sessions->tokens[i] = undecided_token(sessions, request->id, i);
    }
    return forward_write_canvas(sessions->forward, session->canvas, sessions->tokens,
                                request->canvas_tokens, err);
}

/* Close the gaps between stores; the rows move along in device memory. */
static int push_stores(struct sessions *sessions, struct err *err) {
    struct store_move move;
    int status = 0;
    while (status == 0 && stores_push(&sessions->stores, &move)) {
        status = forward_move_store(sessions->forward, move.to, move.from, move.size, err);
        sessions->by_slot[move.owner].store_bytes = move.to;
    }
    return status;
}

/* From the lowest row that is kept on; the pool may end a little above the last place. */
static int hold_stores(struct sessions *sessions, struct err *err) {
    if (sessions_settle(sessions, err) != 0) {
        return err_status(err);
    }
    int64_t lowest = stores_lowest(&sessions->stores);
    return forward_hold(sessions->forward,
                        lowest < sessions->stores.size ? lowest : sessions->limits.pool_bytes, err);
}

static int take_store(struct sessions *sessions, uint32_t slot, int64_t bytes, struct err *err) {
    struct session *session = &sessions->by_slot[slot];
    session->store_bytes = -1;
    if (bytes == 0) {
        return 0;
    }
    session->store_bytes = stores_take(&sessions->stores, slot, bytes, 0);
    int status = 0;
    if (session->store_bytes < 0) {
        status = push_stores(sessions, err);
        session->store_bytes = stores_take(&sessions->stores, slot, bytes, 0);
    }
    if (status == 0 && session->store_bytes < 0) {
        char wanted[32], left[32];
        status =
            err_world(err, "the pool of cached rows is full: %s wanted, %s left",
                      num_format_bytes(wanted, sizeof wanted, (double)bytes),
                      num_format_bytes(left, sizeof left,
                                       (double)(sessions->stores.size - sessions->stores.used)));
    }
    return status == 0 ? hold_stores(sessions, err) : status;
}

/* A store has rows of all layers and, after them, what goes on after the leading ones; what is kept
 * has these layers' alone, and that. */
int sessions_copy_prefix(struct sessions *sessions, uint32_t slot, const struct request *request,
                         uint32_t first, bool keeps, struct err *err) {
    const struct system *system = sessions->system;
    const int64_t tokens = request->prefix_tokens, layers = system->model->layers;
    const int64_t state_bytes =
        graph_element_bytes(&system->graph) * (int64_t)system->model->hidden;
    const int64_t layer_bytes = (system->row_bytes - state_bytes) / layers;
    const int64_t leading_bytes = layer_bytes * system->rows.lead_layers;
    const int64_t kept = sessions->prefixes_byte + first * (leading_bytes + state_bytes);
    const int64_t own = sessions->by_slot[slot].store_bytes;
    const struct {
        int64_t own, kept, bytes;
    } parts[] = {
        {own, kept, tokens * leading_bytes},
        {own + tokens * layer_bytes * layers, kept + tokens * leading_bytes, tokens * state_bytes}};
    int status = 0;
    for (int i = 0; status == 0 && i < 2; i++) {
        status = keeps ? forward_move_store(sessions->forward, parts[i].kept, parts[i].own,
                                            parts[i].bytes, err)
                       : forward_move_store(sessions->forward, parts[i].own, parts[i].kept,
                                            parts[i].bytes, err);
    }
    return status;
}

int sessions_grow(struct sessions *sessions, uint32_t slot, const struct request *request,
                  struct err *err) {
    int64_t n = request->kv_held_bytes / page_bytes(sessions->system);
    return sessions->follows || pages_grow(&sessions->pages, slot, n)
               ? 0
               : err_world(err,
                           "the pool of pages is full: request %" PRIu64 " holds %" PRId32
                           " and wants %" PRId64 " (at most %" PRId32 "), %" PRId32 " are left",
                           request->id, sessions->pages.held[slot], n, sessions->pages.most,
                           sessions->pages.n_free);
}

/* ---- the host's memory ---- */

int sessions_settle(struct sessions *sessions, struct err *err) {
    const bool waits = sessions->is_copying;
    sessions->is_copying = false;
    return waits ? forward_swap_wait(sessions->forward, err) : 0;
}

/* Where `bytes` go in the host's memory; those that lie there are pushed together where there is no
 * gap. */
static int take_host(struct sessions *sessions, uint32_t slot, int64_t bytes, struct err *err) {
    struct session *session = &sessions->by_slot[slot];
    struct store_move move;
    session->host = stores_take(&sessions->swapped, slot, bytes, 0);
    if (session->host < 0 && sessions_settle(sessions, err) != 0) {
        return err_status(err);
    }
    if (session->host < 0) {
        while (stores_push(&sessions->swapped, &move)) {
            forward_move_host(sessions->forward, move.to, move.from, move.size);
            sessions->by_slot[move.owner].host = move.to;
        }
        session->host = stores_take(&sessions->swapped, slot, bytes, 0);
    }
    session->host_bytes = session->host >= 0 ? bytes : 0;
    return session->host >= 0 ? 0
                              : err_world(err,
                                          "the host's memory is full: %" PRId64
                                          " bytes wanted, %" PRId64 " left of swap.host_bytes",
                                          bytes, sessions->swapped.size - sessions->swapped.used);
}

static int copy_rows(struct sessions *sessions, uint32_t slot, bool is_out, struct err *err) {
    const struct session *session = &sessions->by_slot[slot];
    struct row_copy copy = {.host = session->host, .is_out = is_out};
    sessions->is_copying = true;
    if (sessions_are_exact(sessions)) {
        ASSERT(forward_page_bytes(sessions->forward) == page_bytes(sessions->system));
        copy.pages = pages_of(&sessions->pages, slot);
        copy.n_pages = session->host_bytes / page_bytes(sessions->system);
    } else {
        copy.first = session->store_bytes;
        copy.bytes = session->host_bytes;
    }
    return forward_swap(sessions->forward, &copy, err);
}

/* What is kept of a request's positions besides rows. */
static int copy_places(struct sessions *sessions, uint32_t slot, bool is_out, struct err *err) {
    const int64_t n = settings_window_tokens(&sessions->system->settings);
    const int64_t first = sessions_first_place(sessions, slot);
    if (sessions->swapped_places == NULL) {
        return 0;
    }
    unsigned char *host = sessions->swapped_places + slot * sessions->places_bytes;
    return is_out ? forward_read_places(sessions->forward, first, n, host, err)
                  : forward_write_places(sessions->forward, first, n, host, err);
}

int sessions_swap_out(struct sessions *sessions, uint32_t slot, const struct request *request,
                      struct err *err) {
    const int64_t bytes = request->kv_held_bytes;
    int status = copy_places(sessions, slot, true, err);
    sessions->by_slot[slot].has_places_out = sessions->swapped_places != NULL;
    if (status != 0 || bytes == 0) {
        return status;
    }
    status = take_host(sessions, slot, bytes, err);
    return status == 0 ? copy_rows(sessions, slot, true, err) : status;
}

static void give_host(struct sessions *sessions, uint32_t slot) {
    if (sessions->by_slot[slot].host_bytes > 0) {
        stores_give(&sessions->swapped, slot);
        sessions->by_slot[slot].host_bytes = 0;
    }
}

static int bring_back(struct sessions *sessions, uint32_t slot, struct err *err) {
    int status = sessions->by_slot[slot].host_bytes > 0 ? copy_rows(sessions, slot, false, err) : 0;
    give_host(sessions, slot);
    return status;
}

void sessions_drop(struct sessions *sessions, uint32_t slot) {
    struct session *session = &sessions->by_slot[slot];
    give_host(sessions, slot);
    session->has_places_out = false;
    if (session->has_canvas) {
        stores_give(&sessions->canvases, slot);
        session->has_canvas = false;
    }
}

/* ---- canvases ---- */

static int take_canvas(struct sessions *sessions, uint32_t slot, const struct request *request,
                       struct err *err) {
    struct session *session = &sessions->by_slot[slot];
    ASSERT(!session->has_canvas);
    session->canvas = stores_take(&sessions->canvases, slot,
                                  request->canvas_tokens + system_check_rows(sessions->system), 0);
    session->has_canvas = session->canvas >= 0;
    return session->has_canvas
               ? 0
               : err_world(err,
                           "no room for the canvas of request %" PRIu64 ": %" PRId64
                           " tokens of canvases run at once, %" PRId64 " are the most",
                           request->id, sessions->canvases.used, sessions->canvases.size);
}

int sessions_admit(struct sessions *sessions, uint32_t slot, const struct request *request,
                   const int32_t *prompt, const struct beginning *beginning, struct err *err) {
    struct session *session = &sessions->by_slot[slot];
    if (request->canvas_tokens > sessions->limits.max_positions) {
        return err_usage(err,
                         "request %" PRIu64 " has a canvas of %" PRIu32 " tokens, but the engine "
                         "was opened for %" PRIu32,
                         request->id, request->canvas_tokens, sessions->limits.max_positions);
    }
    bool returns = session->has_canvas && session->id == request->id;
    session->request = request;
    session->id = request->id;
    session->prompt_tokens = request->prompt_tokens;
    session->output_tokens = request->output_tokens;
    session->store_bytes = -1;
    session->beginning =
        prompt == NULL && beginning != NULL ? *beginning : (struct beginning){.contents = NULL};
    sessions->follows = sessions->shared.n > 0 && beginning != NULL;
    int status = returns ? 0 : take_canvas(sessions, slot, request, err);
    if (status == 0) {
        status = sessions_are_exact(sessions) ? sessions_grow(sessions, slot, request, err)
                                              : take_store(sessions, slot, request->kv_bytes, err);
    }
    status = status == 0 ? bring_back(sessions, slot, err) : status;
    if (status == 0 && sessions->free_places != NULL) {
        ASSERT(sessions->n_free_places > 0); /* no more requests run than the system says */
        session->place_block = sessions->free_places[--sessions->n_free_places];
        status = session->has_places_out ? copy_places(sessions, slot, false, err)
                                         : sessions_empty_places(sessions, slot, err);
        session->has_places_out = false;
    }
    return status != 0 || returns ? status : write_canvas(sessions, session, request, prompt, err);
}

void sessions_release(struct sessions *sessions, uint32_t slot) {
    struct session *session = &sessions->by_slot[slot];
    if (session->request->state != REQUEST_PREEMPTED) {
        stores_give(&sessions->canvases, slot);
        session->has_canvas = false;
    }
    if (sessions->free_places != NULL) {
        sessions->free_places[sessions->n_free_places++] = session->place_block;
    }
    if (sessions->follows) {
        shared_pages_give(&sessions->shared, slot);
    } else if (sessions_are_exact(sessions)) {
        pages_give(&sessions->pages, slot);
    } else if (session->store_bytes >= 0) {
        stores_give(&sessions->stores, slot);
    }
}

/* ---- a step's room ---- */

void sessions_follow(struct sessions *sessions, const struct page_lists *lists) {
    if (sessions->follows) {
        ASSERT(lists != NULL);
        shared_pages_follow(&sessions->shared, lists);
    }
}

uint32_t sessions_pages(const struct sessions *sessions, uint32_t slot, const int32_t **pages) {
    *pages = sessions->follows ? shared_pages_of(&sessions->shared, slot)
                               : pages_of(&sessions->pages, slot);
    return (uint32_t)(sessions->follows ? sessions->shared.held[slot] : sessions->pages.held[slot]);
}

int sessions_make_room(struct sessions *sessions, const struct placement *placement,
                       struct err *err) {
    int status = 0;
    int64_t peak_bytes = sessions->limits.shares_pool ? placement->peak_bytes : 0;
    if (stores_lowest(&sessions->stores) < peak_bytes) {
        status = push_stores(sessions, err);
    }
    int64_t lowest = stores_lowest(&sessions->stores);
    if (status == 0 && lowest < peak_bytes) {
        char needed[32], left[32];
        status = err_world(err, "a step needs %s of workspace, cached rows leave %s",
                           num_format_bytes(needed, sizeof needed, (double)peak_bytes),
                           num_format_bytes(left, sizeof left, (double)lowest));
    }
    return status != 0 || sessions_are_exact(sessions) ? status : hold_stores(sessions, err);
}

int64_t sessions_first_place(const struct sessions *sessions, uint32_t slot) {
    return (int64_t)sessions->by_slot[slot].place_block *
           settings_window_tokens(&sessions->system->settings);
}

int sessions_empty_places(struct sessions *sessions, uint32_t slot, struct err *err) {
    return forward_clear_places(sessions->forward, sessions_first_place(sessions, slot),
                                settings_window_tokens(&sessions->system->settings), err);
}

/* ---- what they hold ---- */

void sessions_audit(struct sessions *sessions) {
    ASSERT(sessions->stores.n == (sessions->prefixes_bytes > 0));
    ASSERT(sessions->stores.used == sessions->prefixes_bytes);
    ASSERT(sessions->swapped.n == 0 && sessions->swapped.used == 0);
    ASSERT(sessions->canvases.n == 0 && sessions->canvases.used == 0);
    ASSERT(pages_are_whole(&sessions->pages) && sessions->shared.n_used == 0);
    ASSERT(sessions->free_places == NULL ||
           sessions->n_free_places == sessions->limits.max_requests);
}

int sessions_read(struct sessions *sessions, uint32_t slot, int32_t *tokens, struct err *err) {
    const struct session *session = &sessions->by_slot[slot];
    return forward_read_canvas(sessions->forward, session->canvas + session->prompt_tokens, tokens,
                               session->output_tokens, err);
}

int sessions_keep_output(struct sessions *sessions, uint32_t slot, int32_t *room, struct err *err) {
    const struct session *session = &sessions->by_slot[slot];
    const struct beginning *beginning = &session->beginning;
    if (beginning->contents == NULL ||
        !contents_is_known(beginning->contents, beginning->content)) {
        return 0;
    }
    int status = sessions_read(sessions, slot, room, err);
    if (status == 0) {
        beginnings_keep(sessions->beginnings, beginning, room, session->output_tokens);
    }
    return status;
}

int64_t sessions_pool_bytes(const struct sessions *sessions) {
    int64_t n_pages =
        sessions->follows ? sessions->shared.n_used : sessions->pages.n - sessions->pages.n_free;
    return sessions_are_exact(sessions) ? n_pages * page_bytes(sessions->system)
                                        : sessions->stores.used - sessions->prefixes_bytes;
}

int64_t sessions_pool_peak_bytes(const struct sessions *sessions) {
    int64_t n_pages = sessions->follows ? sessions->shared.most_used : sessions->pages.most_used;
    return sessions_are_exact(sessions) ? n_pages * page_bytes(sessions->system)
                                        : sessions->stores.most_used - sessions->prefixes_bytes;
}
