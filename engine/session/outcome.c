#include "engine/session/outcome.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session/renoise.h"
#include "sim/base/mem.h"
#include "sim/model/ranks.h"
#include "sim/policy/cache/blocks.h"
#include "sim/policy/decoder/take_back.h"

static const struct system *system_of(const struct outcome *outcome) {
    return outcome->members->sessions->system;
}

static bool renoises(const struct outcome *outcome) {
    return system_of(outcome)->renoises;
}

static bool speculates(const struct outcome *outcome) {
    return system_of(outcome)->speculates;
}

static bool moves(const struct outcome *outcome) {
    return system_of(outcome)->moves;
}

void outcome_open(struct outcome *outcome, const struct members *members, struct forward *forward) {
    const struct step_limits *limits = &members->sessions->limits;
    uint32_t block = settings_window_tokens(&members->sessions->system->settings);
    size_t unrolled = limits->max_unrolled > 1 ? limits->max_unrolled : 1;
    *outcome = (struct outcome){
        .members = members,
        .forward = forward,
        .commits = mem_zeroed(unrolled * limits->max_requests, sizeof *outcome->commits),
        .result = {.token = mem_zeroed(limits->max_logit_rows, sizeof(int32_t)),
                   .confidence = mem_zeroed(limits->max_logit_rows, sizeof(float)),
                   .margin = mem_zeroed(limits->max_logit_rows, sizeof(float)),
                   .entropy = mem_zeroed(limits->max_logit_rows, sizeof(float)),
                   .committed = mem_zeroed(limits->max_logit_rows, sizeof(uint8_t)),
                   .n_committed = mem_zeroed(limits->max_requests, sizeof(int32_t))},
        .left = mem_zeroed(limits->max_requests, sizeof *outcome->left),
        .rows = mem_zeroed(block, sizeof *outcome->rows),
        .offsets = mem_zeroed(block, sizeof *outcome->offsets),
        .confidence = mem_zeroed(block, sizeof *outcome->confidence),
        .margin = mem_zeroed(block, sizeof *outcome->margin),
        .entropy = mem_zeroed(block, sizeof *outcome->entropy),
        .chosen = mem_zeroed(block, sizeof *outcome->chosen),
    };
    const uint32_t vocab = model_whole_vocab(members->sessions->system->model);
    if (speculates(outcome)) {
        drafts_open(&outcome->drafts, system_of(outcome)->decoder_state,
                    system_of(outcome)->settings.max_in_system, block, vocab);
    }
    if (moves(outcome)) {
        moving_open(&outcome->moving, system_of(outcome)->decoder_state,
                    system_of(outcome)->settings.max_in_system, block, vocab,
                    system_of(outcome)->model->mask_token);
    }
    if (moves(outcome) || outcome->drafts.logits != NULL) {
        outcome->logits =
            mem_zeroed((size_t)limits->max_logit_rows * vocab, sizeof *outcome->logits);
    }
    if (renoises(outcome)) {
        outcome->top = mem_reserved((size_t)system_of(outcome)->settings.max_in_system * block,
                                    sizeof *outcome->top);
    }
    if (system_keeps_row(system_of(outcome))) {
        outcome->kept =
            mem_reserved(system_of(outcome)->settings.max_in_system, sizeof *outcome->kept);
    }
    if (renoises(outcome) || speculates(outcome) || moves(outcome)) {
        outcome->next = mem_zeroed(block, sizeof *outcome->next);
        outcome->before = mem_zeroed(block, sizeof *outcome->before);
    }
}

void outcome_close(struct outcome *outcome) {
    const struct step_result *result = &outcome->result;
    void *const all[] = {outcome->commits, result->token,     result->confidence,  result->margin,
                         result->entropy,  result->committed, result->n_committed, outcome->left,
                         outcome->rows,    outcome->offsets,  outcome->confidence, outcome->margin,
                         outcome->entropy, outcome->chosen,   outcome->logits,     outcome->next,
                         outcome->before};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
    mem_released(outcome->top);
    mem_released(outcome->kept);
    decode_positions_fini(&outcome->positions);
    drafts_close(&outcome->drafts);
    moving_close(&outcome->moving);
    *outcome = (struct outcome){0};
}

bool outcome_is_watched(const struct outcome *outcome) {
    return outcome->watch.see != NULL;
}

bool outcome_tracks_rows(const struct outcome *outcome) {
    const struct system *system = system_of(outcome);
    return outcome_is_watched(outcome) || system_host_chooses(system) ||
           system->settings.logit_scope == LOGITS_MASKED || system->revises ||
           system->settings.window_slides || system->settings.blocks_in_flight > 1 ||
           system_leaves_out(system) || system->cache->reads_entropy != 0;
}

/* In the step number `i` of those since the host looked last. */
static int not_numbers(const struct request *request, uint32_t i, struct err *err) {
    return err_world(err, "the logits of request %" PRIu64 " are not numbers in its step %" PRIu32,
                     request->id, request->steps + i + 1);
}

/* ---- what rows said ---- */

static void keep_number(enum kept kind, float *said, float *kept) {
    if (said != NULL && kind == KEPT_READ) {
        *said = *kept;
    } else if (said != NULL && kind == KEPT_WRITTEN) {
        *kept = *said;
    }
}

static float *number_at(float *numbers, uint32_t row) {
    return numbers != NULL ? numbers + row : NULL;
}

static void keep_row(enum kept kind, const struct step_result *said, uint32_t row,
                     struct row_said *kept) {
    keep_number(kind, number_at(said->confidence, row), &kept->confidence);
    keep_number(kind, number_at(said->margin, row), &kept->margin);
    keep_number(kind, number_at(said->entropy, row), &kept->entropy);
    if (said->token != NULL && kind == KEPT_READ) {
        said->token[row] = kept->token;
    } else if (said->token != NULL && kind == KEPT_WRITTEN) {
        kept->token = said->token[row];
    }
}

/* What is asked of the step done last. Where the row before a window is kept, what it says is noted
 * in the pass that runs it, and is what the window's first position is decided by in those after.
 */
static int read_rows(struct outcome *outcome, const struct step_result *said, struct err *err) {
    const struct members *members = outcome->members;
    const int status = forward_result(outcome->forward, said, err);
    uint32_t first = 0;
    for (uint32_t i = 0; outcome->kept != NULL && status == 0 && i < members->planned->n_slots;
         i++) {
        const struct kept_row of = members_kept_row(members, i);
        keep_row(of.kind, said, first + of.row, &outcome->kept[planned_slot(members->planned, i)]);
        first += members->decided->n_rows[i];
    }
    return status;
}

/* Of a record: tokens that are kept are noted, and those that it commits written. */
static int keep_recorded(struct outcome *outcome, struct err *err) {
    const struct members *members = outcome->members;
    const struct step_result said = {.token = outcome->result.token};
    int status = read_rows(outcome, &said, err);
    for (uint32_t i = 0, first = 0; status == 0 && i < members->planned->n_slots; i++) {
        const struct planned_block *block = members_block(members->planned, i);
        const struct step_part *part = &members->decided->parts[i];
        if (members_kept_row(members, i).kind == KEPT_READ && block != NULL &&
            block->outcome[0] == OUTCOME_COMMIT) {
            status = forward_write_canvas(outcome->forward, part->canvas + part->targets[0],
                                          &said.token[first], 1, err);
        }
        first += members->decided->n_rows[i];
    }
    return status;
}

/* ---- the host's choice ---- */

/* Confidences as decoders are promised them: between 0 and 1, neither of them reached. */
static float open_interval(float confidence) {
    return fminf(fmaxf(confidence, FLT_MIN), 1 - FLT_EPSILON / 2);
}

/* Of `n` masked rows, which are `first` and following in the results, those that would be given
 * another token than the mask; all, where there is none (place.h). */
static uint32_t that_fill(struct outcome *outcome, uint32_t first, uint32_t n) {
    const int32_t mask = (int32_t)system_of(outcome)->model->mask_token;
    uint32_t n_fill = 0;
    for (uint32_t j = 0; j < n; j++) {
        n_fill += outcome->result.token[first + outcome->rows[j]] != mask;
    }
    for (uint32_t j = 0, to = 0; n_fill > 0 && j < n; j++) {
        const uint32_t row = outcome->rows[j];
        if (outcome->result.token[first + row] != mask) {
            outcome->rows[to++] = row;
        }
    }
    return n_fill > 0 ? n_fill : n;
}

/* What the decoder is shown of a member's `n` rows, which are `first` and following in the results.
 */
static struct decode_seen look(struct outcome *outcome, uint32_t member, uint32_t first,
                               uint32_t n) {
    const struct members *members = outcome->members;
    const struct request *request = members_request(members->planned, member);
    bool statistics = system_of(outcome)->decoder->reads_statistics != 0;
    for (uint32_t j = 0; j < n; j++) {
        uint32_t row = outcome->rows[j];
        outcome->offsets[j] =
            (uint32_t)members->decided->parts[member].targets[row] - window_first(request);
        outcome->confidence[j] = open_interval(outcome->result.confidence[first + row]);
        outcome->margin[j] = outcome->result.margin[first + row];
        outcome->entropy[j] = outcome->result.entropy[first + row];
    }
    return (struct decode_seen){.n = n,
                                .first = window_first(request),
                                .offset = outcome->offsets,
                                .confidence = outcome->confidence,
                                .margin = statistics ? outcome->margin : NULL,
                                .entropy = statistics ? outcome->entropy : NULL};
}

static void note_confidence(const struct outcome *outcome, uint32_t member, int32_t target,
                            float confidence) {
    const struct request *request = members_request(outcome->members->planned, member);
    const struct planned_block *block = members_block(outcome->members->planned, member);
    if (block != NULL && block->confidence != NULL && window_has(request, (uint32_t)target)) {
        block->confidence[(uint32_t)target - window_first(request)] = confidence;
    }
}

/* Commit what the decoder marked among a member's masked rows, which is as many as it says. */
static int commit_chosen(struct outcome *outcome, uint32_t member, uint32_t first, uint32_t n,
                         struct err *err) {
    const struct step_part *part = &outcome->members->decided->parts[member];
    uint32_t n_chosen = 0;
    for (uint32_t j = 0; j < n; j++) {
        if (outcome->chosen[j]) {
            int32_t target = part->targets[outcome->rows[j]];
            n_chosen++;
            (void)members_note_commit(outcome->members->planned, member, target);
            note_confidence(outcome, member, target, outcome->confidence[j]);
            if (forward_write_canvas(outcome->forward, part->canvas + target,
                                     &outcome->result.token[first + outcome->rows[j]], 1,
                                     err) != 0) {
                return err_status(err);
            }
        }
    }
    return n_chosen == outcome->commits[member]
               ? 0
               : err_world(err,
                           "decoder %s broke its promise: it says that it commits %" PRIu32
                           " positions and marks %" PRIu32,
                           system_of(outcome)->decoder->policy.name, outcome->commits[member],
                           n_chosen);
}

/* What the decoder takes back of what it committed before. */
static void take_back(struct outcome *outcome, uint32_t member) {
    const struct planned_step *planned = outcome->members->planned;
    const struct request *request = members_request(planned, member);
    const struct planned_block *block = members_block(planned, member);
    const struct system *system = system_of(outcome);
    if (system->decoder->take_back == NULL || block == NULL) {
        return;
    }
    const struct take_back of = {.length = window_length(request),
                                 .n_fixed = block->n_fixed,
                                 .masked = block->masked,
                                 .keep = block->keep,
                                 .confidence = block->confidence,
                                 .offsets = outcome->offsets,
                                 .values = outcome->confidence,
                                 .again = outcome->chosen};
    take_back_ask(system->decoder, system->decoder_state, request, &of, block->outcome);
}

/* Tokens of the positions that are masked again leave the canvas. */
static int mask_again(struct outcome *outcome, struct err *err) {
    const struct planned_step *planned = outcome->members->planned;
    const int32_t mask = (int32_t)system_of(outcome)->model->mask_token;
    for (uint32_t i = 0; i < planned->n_slots; i++) {
        const struct request *request = members_request(planned, i);
        const struct planned_block *block = members_block(planned, i);
        const int64_t first = outcome->members->decided->parts[i].canvas + window_first(request);
        for (uint32_t at = 0; block != NULL && at < window_length(request); at++) {
            if (block->outcome[at] == OUTCOME_AGAIN &&
                forward_write_canvas(outcome->forward, first + at, &mask, 1, err) != 0) {
                return err_status(err);
            }
        }
    }
    return 0;
}

/* The tokens that a record says were replaced in the step, by the most likely ones of theirs. */
static int revise_recorded(struct outcome *outcome, struct err *err) {
    const struct members *members = outcome->members;
    const struct planned_step *planned = members->planned;
    const struct step_result result = {.token = outcome->result.token};
    const int32_t mask = (int32_t)system_of(outcome)->model->mask_token;
    int status = forward_result(outcome->forward, &result, err);
    for (uint32_t i = 0, first = 0; status == 0 && i < planned->n_slots; i++) {
        const struct request *request = members_request(planned, i);
        const struct planned_block *block = members_block(planned, i);
        const struct step_part *part = &members->decided->parts[i];
        for (uint32_t r = 0; block != NULL && status == 0 && r < members->decided->n_rows[i]; r++) {
            const uint32_t target = (uint32_t)part->targets[r];
            const int32_t *token = &result.token[first + r];
            if (window_has(request, target) && *token != mask &&
                block->outcome[target - window_first(request)] == OUTCOME_REVISE) {
                status =
                    forward_write_canvas(outcome->forward, part->canvas + target, token, 1, err);
            }
        }
        first += members->decided->n_rows[i];
    }
    return status;
}

/* A pass over a canvas of random tokens, all of whose `n` rows decide, which are `first` and
 * following in the results: it is written anew, or committed as a whole. */
static int renoise(struct outcome *outcome, uint32_t member, uint32_t first, uint32_t n,
                   struct err *err) {
    const struct planned_step *planned = outcome->members->planned;
    const struct request *request = members_request(planned, member);
    const struct step_part *part = &outcome->members->decided->parts[member];
    const uint32_t block = settings_window_tokens(&system_of(outcome)->settings);
    const struct step_result *result = &outcome->result;
    int32_t *top = outcome->top + (size_t)planned_slot(planned, member) * block;
    const struct renoise_canvas canvas = {.request = request->id,
                                          .first = window_first(request),
                                          .n = n,
                                          .steps = window_steps(request),
                                          .vocab = model_whole_vocab(system_of(outcome)->model)};
    const struct renoise_read read = {.top = result->token + first,
                                      .drawn =
                                          (const int32_t *)(const void *)result->margin + first,
                                      .entropy = result->entropy + first};
    const struct renoise_tokens tokens = {
        .top = top, .next = outcome->next, .order = outcome->offsets};
    const bool is_over = renoise_pass(system_of(outcome)->decoder_state, &canvas, &read, &tokens);
    for (uint32_t i = 0; is_over && i < n; i++) {
        (void)members_note_commit(planned, member, (int32_t)(canvas.first + i));
    }
    outcome->commits[member] = is_over ? n : 0;
    return forward_write_canvas(outcome->forward, part->canvas + canvas.first,
                                is_over ? top : outcome->next, n, err);
}

/* ---- drafts and their checks ---- */

static const float *logits_at(const struct outcome *outcome, uint32_t row) {
    return outcome->logits != NULL ? outcome->logits + (size_t)row * outcome->drafts.vocab : NULL;
}

/* A member's drafts, of masked rows that are `first` and following in the results, in its window as
 * it is: to where the check that comes next reads them. */
static int write_drafts(struct outcome *outcome, uint32_t member, uint32_t n, struct err *err) {
    const struct planned_step *planned = outcome->members->planned;
    const struct request *request = members_request(planned, member);
    const int64_t canvas = outcome->members->decided->parts[member].canvas;
    int32_t *tokens = outcome->next;
    if (forward_read_canvas(outcome->forward, canvas + window_first(request), tokens,
                            window_length(request), err) != 0) {
        return err_status(err);
    }
    for (uint32_t j = 0; j < n; j++) {
        const uint32_t at = outcome->offsets[j];
        tokens[at] = drafts_token(&outcome->drafts, planned_slot(planned, member), at);
    }
    return forward_write_canvas(outcome->forward, canvas + request->canvas_tokens, tokens,
                                window_length(request), err);
}

/* What a check commits: marks and tokens of the first run's rows, one at least. */
static int check_drafts(struct outcome *outcome, uint32_t member, uint32_t first,
                        const struct decode_seen *seen, struct err *err) {
    const struct planned_step *planned = outcome->members->planned;
    const struct request *request = members_request(planned, member);
    const struct drafts_check check = {.request = request->id,
                                       .slot = planned_slot(planned, member),
                                       .first = window_first(request),
                                       .decided = window_decided(request)};
    const uint32_t n_run = speculation_run(seen);
    uint32_t n = 0;
    for (bool accepts = true; accepts && n < n_run; n++) {
        const uint32_t row = first + outcome->rows[n];
        int32_t *token = &outcome->result.token[row];
        outcome->chosen[n] = 1;
        if (!drafts_accept(&outcome->drafts, system_of(outcome)->decoder_state, &check,
                           seen->offset[n], *token, logits_at(outcome, row), token, &accepts)) {
            return not_numbers(request, 0, err);
        }
    }
    outcome->commits[member] = n;
    return commit_chosen(outcome, member, first, seen->n, err);
}

/* A pass that drafts commits as a threshold does, or nothing where the next one checks it. */
static int speculate(struct outcome *outcome, uint32_t member, uint32_t first, uint32_t n,
                     struct err *err) {
    const struct system *system = system_of(outcome);
    const struct planned_step *planned = outcome->members->planned;
    const struct request *request = members_request(planned, member);
    const struct decode_seen seen = look(outcome, member, first, n);
    memset(outcome->chosen, 0, n);
    if (speculation_is_check(request)) {
        return check_drafts(outcome, member, first, &seen, err);
    }
    for (uint32_t j = 0; j < n; j++) {
        const uint32_t row = first + outcome->rows[j];
        drafts_note(&outcome->drafts, planned_slot(planned, member), seen.offset[j],
                    outcome->result.token[row], logits_at(outcome, row));
    }
    const struct planned_block *block = members_block(planned, member);
    if (speculation_checks(system->decoder_state, request, &seen, model_whole_vocab(system->model),
                           block != NULL ? block->bandit : NULL)) {
        outcome->commits[member] = 0;
        return write_drafts(outcome, member, n, err);
    }
    const struct decode_rule rule = decoder_rule(system->decoder, system->decoder_state, request);
    const uint32_t n_fill = that_fill(outcome, first, n);
    const struct decode_seen fill = look(outcome, member, first, n_fill);
    outcome->commits[member] = decode_choose(&rule, &fill, 0, outcome->chosen);
    return commit_chosen(outcome, member, first, n_fill, err);
}

/* Drafts of the passes that a record says are checked, without their logits. */
static int draft_recorded(struct outcome *outcome, struct err *err) {
    const struct members *members = outcome->members;
    const struct planned_step *planned = members->planned;
    const struct step_result result = {.token = outcome->result.token};
    int status = forward_result(outcome->forward, &result, err);
    for (uint32_t i = 0, first = 0; status == 0 && i < planned->n_slots; i++) {
        const struct request *request = members_request(planned, i);
        const uint32_t n = members_masked_rows(members, i, outcome->rows);
        if (n > 0 && outcome->commits[i] == 0 && !speculation_is_check(request)) {
            for (uint32_t j = 0; j < n; j++) {
                const uint32_t row = outcome->rows[j];
                outcome->offsets[j] =
                    (uint32_t)members->decided->parts[i].targets[row] - window_first(request);
                drafts_note(&outcome->drafts, planned_slot(planned, i), outcome->offsets[j],
                            result.token[first + row], NULL);
            }
            status = write_drafts(outcome, i, n, err);
        }
        first += members->decided->n_rows[i];
    }
    return status;
}

/* A pass over a block whose tokens may move, with `first` and following in the results its rows:
 * its tokens after it, and how each position came out. */
static int move(struct outcome *outcome, uint32_t member, uint32_t first, struct err *err) {
    const struct planned_step *planned = outcome->members->planned;
    const struct request *request = members_request(planned, member);
    const struct planned_block *block = members_block(planned, member);
    const int64_t canvas = outcome->members->decided->parts[member].canvas + window_first(request);
    const struct moving_block of = {.request = request->id,
                                    .slot = planned_slot(planned, member),
                                    .first = window_first(request),
                                    .length = window_length(request),
                                    .n_fixed = block->n_fixed};
    int32_t *before = outcome->before, *after = outcome->next;
    if (forward_read_canvas(outcome->forward, canvas, before, of.length, err) != 0) {
        return err_status(err);
    }
    memcpy(after, before, of.length * sizeof *after);
    moving_pass(&outcome->moving, &of, outcome->logits + (size_t)first * outcome->moving.vocab,
                after);
    for (uint32_t i = 0; i < of.length; i++) {
        const bool was_masked = block->masked[i] != 0, is_masked = after[i] == outcome->moving.mask;
        block->outcome[i] = was_masked              ? (is_masked ? OUTCOME_NONE : OUTCOME_COMMIT)
                            : i < of.n_fixed        ? OUTCOME_NONE
                            : is_masked             ? OUTCOME_AGAIN
                            : after[i] != before[i] ? OUTCOME_REVISE
                                                    : OUTCOME_NONE;
    }
    return forward_write_canvas(outcome->forward, canvas, after, of.length, err);
}

/* The decoder reads what is known of each member's masked positions and chooses. */
static int choose_on_host(struct outcome *outcome, struct err *err) {
    const struct members *members = outcome->members;
    const struct system *system = system_of(outcome);
    struct step_result result = outcome->result;
    result.committed = NULL;
    result.n_committed = NULL;
    int status = read_rows(outcome, &result, err);
    if (status == 0 && outcome->logits != NULL) {
        status = forward_logits(outcome->forward, outcome->logits, err);
    }
    for (uint32_t i = 0, first = 0; status == 0 && i < members->planned->n_slots; i++) {
        const struct request *request = members_request(members->planned, i);
        uint32_t n = members_masked_rows(members, i, outcome->rows);
        outcome->commits[i] = 0;
        for (uint32_t j = 0; j < n; j++) {
            if (isnan(result.confidence[first + outcome->rows[j]])) {
                return not_numbers(request, 0, err);
            }
        }
        if (moves(outcome) && blocks_decide(request)) {
            status = move(outcome, i, first, err);
        } else if (n > 0 && renoises(outcome)) {
            status = renoise(outcome, i, first, n, err);
        } else if (n > 0 && speculates(outcome)) {
            status = speculate(outcome, i, first, n, err);
        } else if (n > 0) { /* none in a prefill, a commit pass */
            n = that_fill(outcome, first, n);
            const struct decode_seen seen = look(outcome, i, first, n);
            outcome->commits[i] =
                system->decoder->choose(system->decoder_state, request, &seen, outcome->chosen);
            status = commit_chosen(outcome, i, first, n, err);
            if (status == 0) {
                take_back(outcome, i);
            }
        }
        first += members->decided->n_rows[i];
    }
    return status;
}

/* ---- the device's decisions ---- */

/* A counting decoder's word is held against what the device committed. */
static int check_count(const struct system *system, const struct request *request, uint32_t commits,
                       struct err *err) {
    uint32_t counted = request->commit_tokens;
    bool counts = system->decoder->count != NULL && !blocks_yield(request);
    bool may_lack = members_is_listed(system, request);
    return !counts || commits == counted || (commits < counted && may_lack)
               ? 0
               : err_world(err,
                           "the device committed %" PRIu32 " positions of request %" PRIu64
                           ", its decoder counts %" PRIu32,
                           commits, request->id, request->commit_tokens);
}

int outcome_read(struct outcome *outcome, bool decided, struct err *err) {
    const struct planned_step *planned = outcome->members->planned;
    bool settles = outcome_tracks_rows(outcome) && !planned->is_recorded;
    const struct step_result result = {.committed = settles ? outcome->result.committed : NULL,
                                       .n_committed = outcome->result.n_committed};
    int status = forward_result(outcome->forward, &result, err);
    if (status == 0 && settles) {
        members_settle(outcome->members, result.committed);
    }
    for (uint32_t i = 0; status == 0 && i < planned->n_slots; i++) {
        const struct request *request = members_request(planned, i);
        if (result.n_committed[i] == DECODE_NOT_NUMBERS) {
            return not_numbers(request, 0, err);
        }
        uint32_t commits = (uint32_t)result.n_committed[i], masked = window_masked(request);
        status = decided ? 0 : check_count(system_of(outcome), request, commits, err);
        /* A position that was given the mask's own id looks masked to the device and is decided
         * again; it was counted when it was decided first. */
        outcome->commits[i] = decided || commits < masked ? commits : masked;
    }
    return status;
}

/* ---- watching ---- */

void outcome_watch(struct outcome *outcome, const struct position_watch *watch) {
    outcome->watch = *watch;
    decode_positions_init(&outcome->positions,
                          settings_window_tokens(&system_of(outcome)->settings));
}

/* The importance of a member's positions by the layers before and at the eviction, where the step
 * evicts. */
static void take_importance(const struct members *members, uint32_t member,
                            struct decode_positions *p) {
    const struct eviction *seen = &members->seen;
    p->has_importance = seen->before != NULL && members->whole.parts[member].masked != NULL;
    memset(p->before, 0, p->length * sizeof *p->before);
    memset(p->after, 0, p->length * sizeof *p->after);
    for (uint32_t i = 0, at = 0; p->has_importance && i < p->length; i++) {
        if (p->run[i] && p->masked[i]) {
            p->before[i] = seen->before[(uint32_t)seen->first[member] + at];
            p->after[i] = seen->after[(uint32_t)seen->first[member] + at];
        }
        at += p->run[i] != 0;
    }
}

/* And what its logit rows said, from `first` on in the results. */
static void take_rows(struct outcome *outcome, uint32_t member, uint32_t first) {
    const struct step_result *said = &outcome->result;
    struct decode_positions *p = &outcome->positions;
    const int32_t *targets = outcome->members->decided->parts[member].targets;
    uint32_t n = members_masked_rows(outcome->members, member, outcome->rows);
    memset(p->seen, 0, p->length);
    for (uint32_t i = 0; i < p->length; i++) {
        p->token[i] = 0;
        p->confidence[i] = p->margin[i] = p->entropy[i] = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = first + outcome->rows[i];
        uint32_t at = (uint32_t)targets[outcome->rows[i]] - p->start;
        p->seen[at] = p->masked[at] && p->keep[at];
        if (p->seen[at]) {
            p->token[at] = said->token[row];
            p->confidence[at] = said->confidence[row];
            p->margin[at] = said->margin[row];
            p->entropy[at] = 0 - said->entropy[row];
        }
    }
}

/* Of what was committed, where the cache policy reads it. The device has sums of p log p. */
static void take_entropy(const struct outcome *outcome, uint32_t member, uint32_t first) {
    const struct request *request = members_request(outcome->members->planned, member);
    const struct planned_block *block = members_block(outcome->members->planned, member);
    uint32_t n = members_masked_rows(outcome->members, member, outcome->rows);
    for (uint32_t i = 0; i < n; i++) {
        int32_t target = outcome->members->decided->parts[member].targets[outcome->rows[i]];
        block->entropy[(uint32_t)target - window_first(request)] =
            0 - outcome->result.entropy[first + outcome->rows[i]];
    }
}

/* Of each masked position, where the scheduler looks at them. */
static void take_seen(const struct outcome *outcome, uint32_t member, uint32_t first) {
    const struct request *request = members_request(outcome->members->planned, member);
    const struct planned_block *block = members_block(outcome->members->planned, member);
    uint32_t n = members_masked_rows(outcome->members, member, outcome->rows);
    for (uint32_t i = 0; i < n; i++) {
        int32_t target = outcome->members->decided->parts[member].targets[outcome->rows[i]];
        block->seen[(uint32_t)target - window_first(request)] =
            open_interval(outcome->result.confidence[first + outcome->rows[i]]);
    }
}

/* The step's commits are noted in its blocks. */
static int show_member(struct outcome *outcome, uint32_t member, uint32_t first, struct err *err) {
    const struct members *members = outcome->members;
    const struct request *request = members_request(members->planned, member);
    const struct planned_block *block = members_block(members->planned, member);
    struct decode_positions *p = &outcome->positions;
    p->start = window_first(request);
    p->length = window_length(request);
    memcpy(p->masked, block->masked, p->length);
    memcpy(p->run, block->run, p->length);
    memcpy(p->keep, block->keep, p->length);
    memcpy(p->outcome, block->outcome, p->length);
    take_rows(outcome, member, first);
    take_importance(members, member, p);
    return outcome->watch.see(outcome->watch.state, request->id, p, err);
}

/* What the logit rows said goes to the policies that read it, and to who watches. */
static int tell(struct outcome *outcome, struct err *err) {
    const struct members *members = outcome->members;
    bool is_watched = outcome_is_watched(outcome);
    bool is_read = system_of(outcome)->cache->reads_entropy != 0;
    bool is_looked_at = system_of(outcome)->scheduler->says_rows != 0;
    if (members->planned->is_recorded || !(is_watched || is_read || is_looked_at)) {
        return 0;
    }
    struct step_result said = outcome->result;
    if (!is_watched) {
        said = (struct step_result){.entropy = is_read ? outcome->result.entropy : NULL,
                                    .confidence = is_looked_at ? outcome->result.confidence : NULL};
    }
    said.committed = NULL;
    said.n_committed = NULL;
    int status = read_rows(outcome, &said, err);
    for (uint32_t i = 0, first = 0; status == 0 && i < members->planned->n_slots; i++) {
        if (is_read) {
            take_entropy(outcome, i, first);
        }
        if (is_looked_at) {
            take_seen(outcome, i, first);
        }
        status = is_watched ? show_member(outcome, i, first, err) : 0;
        first += members->decided->n_rows[i];
    }
    return status;
}

/* ---- the step ---- */

int outcome_wait(struct outcome *outcome, bool decided, double *device_ns, struct err *err) {
    bool host_chooses = system_host_chooses(system_of(outcome)) && !decided;
    if (forward_wait(outcome->forward, device_ns, err) != 0) {
        return err_status(err);
    }
    int status = host_chooses ? choose_on_host(outcome, err) : outcome_read(outcome, decided, err);
    if (status != 0) {
        return status;
    }
    const struct planned_step *planned = outcome->members->planned;
    if (system_of(outcome)->revises && planned->is_recorded && revise_recorded(outcome, err) != 0) {
        return err_status(err);
    }
    if (speculates(outcome) && decided && draft_recorded(outcome, err) != 0) {
        return err_status(err);
    }
    if (outcome->kept != NULL && decided && planned->is_recorded &&
        keep_recorded(outcome, err) != 0) {
        return err_status(err);
    }
    if (mask_again(outcome, err) != 0) {
        return err_status(err);
    }
    members_count(planned, outcome->commits);
    return tell(outcome, err);
}

int outcome_wait_unrolled(struct outcome *outcome, uint32_t n_steps, double *device_ns,
                          struct err *err) {
    const struct planned_step *planned = outcome->members->planned;
    uint32_t n = planned->n_slots;
    int32_t *n_committed = outcome->result.n_committed;
    int status = forward_wait(outcome->forward, device_ns, err);
    for (uint32_t i = 0; i < n; i++) {
        outcome->left[i] = window_masked(members_request(planned, i));
    }
    for (uint32_t s = 0; status == 0 && s < n_steps; s++) {
        status = forward_committed(outcome->forward, s, n_committed, err);
        for (uint32_t i = 0; status == 0 && i < n; i++) {
            if (n_committed[i] == DECODE_NOT_NUMBERS) {
                return not_numbers(members_request(planned, i), s, err);
            }
            uint32_t committed = (uint32_t)n_committed[i];
            committed = committed < outcome->left[i] ? committed : outcome->left[i];
            outcome->commits[(size_t)s * n + i] = committed;
            outcome->left[i] -= committed;
        }
    }
    return status;
}
