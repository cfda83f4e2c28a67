#include "sim/serve/positions.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"
#include "sim/policy/decoder/even_steps.h"
#include "sim/policy/decoder/moving.h"
#include "sim/policy/decoder/speculation.h"
#include "sim/policy/decoder/take_back.h"
#include "sim/system/system_sampling.h"

bool positions_wanted(const struct system *s) {
    return s->decoder->count == NULL || system_leaves_out(s) || s->cache->memory_bytes > 0;
}

void positions_init(struct positions *p, const struct system *system, uint64_t seed,
                    uint32_t n_slots) {
    size_t window = settings_window_tokens(&system->settings);
    *p = (struct positions){.system = system, .seed = seed};
    p->blocks = mem_reserved(n_slots, sizeof *p->blocks);
    p->masked = mem_reserved(n_slots * window, 1);
    p->uncached = mem_reserved(n_slots * window, 1);
    p->run = mem_reserved(n_slots * window, 1);
    p->keep = mem_reserved(n_slots * window, 1);
    p->outcome = mem_reserved(n_slots * window, 1);
    p->earlier = mem_reserved(n_slots * (window + 1), sizeof *p->earlier);
    p->memory = mem_reserved(n_slots, system->cache->memory_bytes + 1);
    p->text_end = mem_reserved(n_slots, sizeof *p->text_end);
    p->later = system->rows.recent > 0 ? mem_reserved(n_slots * window, sizeof *p->later) : NULL;
    p->delta = mem_zeroed(window, sizeof(float));
    p->entropy =
        system->cache->reads_entropy ? mem_reserved(n_slots * window, sizeof(float)) : NULL;
    p->confidence = system->decoder->take_back != NULL || system->revises || system->moves
                        ? mem_reserved(n_slots * window, sizeof *p->confidence)
                        : NULL;
    p->seen = system->scheduler->says_rows != 0 || system->speculates
                  ? mem_reserved(n_slots * window, sizeof *p->seen)
                  : NULL;
    p->added = system->moves ? mem_reserved(n_slots * window, 1) : NULL;
    p->rounds = system->moves ? mem_reserved(n_slots, sizeof *p->rounds) : NULL;
    p->alone = system->speculates ? mem_zeroed(2 * window, 1) : NULL;
    p->checks = system->speculates ? mem_reserved(n_slots, 1) : NULL;
    p->bandits = system->speculates && speculation_learns(system->decoder_state)
                     ? mem_reserved(n_slots, sizeof *p->bandits)
                     : NULL;
    p->shifts = system_shifts(system) && system->model->mask == MASK_BLOCK_CAUSAL &&
                system_leaves_out(system) && system->rows.settles != BLOCK_PARTS;
    p->decides = p->shifts ? mem_zeroed(window, 1) : NULL;
    choice_init(&p->choice, (uint32_t)window);
    if (system->decoder->credit != NULL) {
        system->decoder->credit(system->decoder_state, &p->credit);
        p->earned = mem_reserved(2 * (size_t)n_slots * window, sizeof *p->earned);
    }
    p->by_order = system->decoder->count != NULL && system->decoder->reads_statistics == 0 &&
                  p->entropy == NULL && p->earned == NULL && p->confidence == NULL &&
                  p->seen == NULL && !system->moves && !system->speculates && !system->revises &&
                  system->settings.iteration != ITERATION_SMOOTH;
}

void positions_fini(struct positions *p) {
    mem_released(p->blocks);
    mem_released(p->masked);
    mem_released(p->uncached);
    mem_released(p->later);
    mem_released(p->run);
    mem_released(p->keep);
    mem_released(p->outcome);
    mem_released(p->earlier);
    mem_released(p->memory);
    mem_released(p->text_end);
    mem_released(p->earned);
    free(p->delta);
    mem_released(p->entropy);
    mem_released(p->confidence);
    mem_released(p->seen);
    mem_released(p->added);
    mem_released(p->rounds);
    mem_released(p->checks);
    mem_released(p->bandits);
    free(p->alone);
    free(p->decides);
    choice_fini(&p->choice);
}

static void *memory_of(const struct positions *p, uint32_t slot) {
    return p->memory + (size_t)slot * p->system->cache->memory_bytes;
}

const void *positions_memory(const struct positions *p, uint32_t slot) {
    return memory_of(p, slot);
}

/* Entries of the slots before it, in arrays of one by position of a window. */
static size_t place_of(const struct positions *p, uint32_t slot) {
    return (size_t)slot * settings_window_tokens(&p->system->settings);
}

static uint8_t *row(const struct positions *p, uint8_t *flags, uint32_t slot) {
    return flags + place_of(p, slot);
}

static float *earned_of(const struct positions *p, uint32_t slot) {
    return p->earned != NULL ? p->earned + 2 * place_of(p, slot) : NULL;
}

static float *entropy_of(const struct positions *p, uint32_t slot) {
    return p->entropy != NULL ? p->entropy + place_of(p, slot) : NULL;
}

static float *confidence_of(const struct positions *p, uint32_t slot) {
    return p->confidence != NULL ? p->confidence + place_of(p, slot) : NULL;
}

static float *seen_of(const struct positions *p, uint32_t slot) {
    return p->seen != NULL ? p->seen + place_of(p, slot) : NULL;
}

static struct bandit *bandit_of(const struct positions *p, uint32_t slot) {
    return p->bandits != NULL ? &p->bandits[slot] : NULL;
}

static uint16_t *earlier_of(const struct positions *p, uint32_t slot) {
    return p->earlier + place_of(p, slot) + slot;
}

/* What is known of positions by the passes that ran them. */
static void lose_passes(const struct positions *p, uint32_t slot) {
    if (p->earned != NULL) {
        memset(earned_of(p, slot), 0, 2 * place_of(p, 1) * sizeof *p->earned);
    }
    if (p->seen != NULL && !p->system->speculates) { /* drafts are the host's */
        memset(seen_of(p, slot), 0, place_of(p, 1) * sizeof *p->seen);
    }
}

void positions_start(struct positions *p, uint32_t slot, uint32_t text_end) {
    p->text_end[slot] = text_end;
    if (p->checks != NULL) {
        p->checks[slot] = 0;
    }
    if (p->bandits != NULL) {
        p->bandits[slot] = (struct bandit){0};
    }
    memset(memory_of(p, slot), 0, p->system->cache->memory_bytes);
}

void positions_enter(struct positions *p, uint32_t slot, const struct request *request,
                     uint32_t n_fixed) {
    block_begin(&p->blocks[slot], (enum block_cache)p->system->rows.settles, window_length(request),
                n_fixed, row(p, p->masked, slot), row(p, p->uncached, slot));
    p->blocks[slot].is_revised = window_is_revised(request);
    p->blocks[slot].waits = request->causal == SEES_BLOCKS && request->shifted != 0 &&
                            window_end(request) < request->canvas_tokens;
    if (p->later != NULL) {
        uint16_t *later = p->later + place_of(p, slot);
        memset(later, 0, window_length(request) * sizeof *later);
        p->blocks[slot].recent = p->system->rows.recent;
        p->blocks[slot].later = later;
    }
    memset(earlier_of(p, slot), 0, ((size_t)window_length(request) + 1) * sizeof *p->earlier);
    lose_passes(p, slot);
    if (p->added != NULL) {
        memset(row(p, p->added, slot), 0, window_length(request));
        p->rounds[slot] = 0;
    }
    if (p->system->cache->learn != NULL) {
        const struct learned nothing = {0};
        p->system->cache->learn(p->system->cache_state, memory_of(p, slot), request, &nothing);
    }
}

/* As many positions of the window as are listed are in flight, none of them cached. */
static void count_anew(struct positions *p, uint32_t slot, const struct request *request) {
    struct block_state *block = &p->blocks[slot];
    block->length = block->n_uncached = window_length(request);
    block->n_masked = 0;
    for (uint32_t i = 0; i < block->length; i++) {
        block->n_masked += block->masked[i];
        block->uncached[i] = 1;
    }
    memset(earlier_of(p, slot), 0, ((size_t)block->length + 1) * sizeof *p->earlier);
}

void positions_carry(struct positions *p, uint32_t slot, const struct request *request) {
    struct block_state *block = &p->blocks[slot];
    memmove(block->masked, block->masked + (block->length - window_length(request)),
            window_length(request));
    block->n_fixed = 0;
    block->frontier = -1;
    count_anew(p, slot, request);
}

uint32_t positions_masked(const struct positions *p, uint32_t slot, const struct request *request,
                          struct range range) {
    const uint8_t *masked = p->blocks[slot].masked;
    uint32_t n = 0;
    for (uint32_t i = range.first; i < range.end; i++) {
        n += masked[i - window_first(request)];
    }
    return n;
}

void positions_extend(struct positions *p, uint32_t slot, const struct request *request) {
    struct block_state *block = &p->blocks[slot];
    const uint32_t more = window_length(request) - block->length;
    memset(block->masked + block->length, 1, more);
    count_anew(p, slot, request);
}

void positions_forget(struct positions *p, uint32_t slot) {
    block_forget(&p->blocks[slot]);
    lose_passes(p, slot);
}

static struct decode_view view_of(const struct positions *p, uint32_t slot,
                                  const struct request *request) {
    uint32_t end = p->text_end[slot], start = window_first(request);
    uint32_t text = end > start ? end - start : 0;
    return (struct decode_view){
        .request = request->id,
        .block_start = window_first(request),
        .block_length = window_length(request),
        .step_in_block = window_steps(request),
        .step = request->steps,
        .behind_text = text < window_length(request) ? window_length(request) - text : 0,
        .mark_tokens = window_has_several(request) ? request->block_tokens : 0,
        .masked = p->blocks[slot].masked};
}

void positions_evict(struct positions *p, uint32_t slot, const struct request *request,
                     const float *delta) {
    const struct block_state *block = &p->blocks[slot];
    const struct eviction_view view = {.request = request,
                                       .length = block->length,
                                       .pending = row(p, p->run, slot),
                                       .masked = block->masked,
                                       .delta = delta,
                                       .frontier = block->frontier};
    (void)p->system->cache->evict(p->system->cache_state, memory_of(p, slot), &view,
                                  row(p, p->keep, slot));
}

static void keep_window(const struct positions *p, uint32_t slot, struct request *request) {
    uint32_t kept, reach;
    positions_kept(p, slot, &kept, &reach);
    window_keep(request, kept, reach);
}

void positions_plan(struct positions *p, uint32_t slot, struct request *request, bool known) {
    struct block_state *block = &p->blocks[slot];
    uint8_t *run = row(p, p->run, slot);
    window_list(request, block_pending(block, run), block_known_in_front(block));
    window_see(request, block->length);
    window_count_earlier(request, earlier_of(p, slot)[block->length - block->n_masked]);
    request->checks = p->checks != NULL && p->checks[slot];
    memcpy(row(p, p->keep, slot), run, block->length);
    memset(row(p, p->outcome, slot), OUTCOME_NONE, block->length);
    if (p->system->rows.chooser == CHOSEN_BY_POLICY && !known && block->n_masked > 0) {
        struct decode_view view = view_of(p, slot, request);
        process_delta(&p->system->process, p->seed, &view, p->delta);
        positions_evict(p, slot, request, p->delta);
    }
    keep_window(p, slot, request);
}

/* Where logits are shifted in blocks, the row before a position has to run for it to be decided,
 * but for a window's first position, which the pass before decided. */
static bool lacks_row_before(const struct positions *p, const uint8_t *run, uint32_t i) {
    return p->shifts && i > 0 && !run[i - 1];
}

/* How soon a masked position comes to run: one whose left neighbour is known before all others,
 * since what its last pass said is out of date; then by that. */
static float urgency(const struct block_state *block, const float *seen, uint32_t i) {
    return i == 0 || !block->masked[i - 1] ? 2 : seen[i];
}

/* The position to run next of those masked that do not run: -1, there is none. */
static int32_t next_to_run(const struct block_state *block, const float *seen, const uint8_t *run,
                           bool surest) {
    int32_t best = -1;
    for (uint32_t i = 0; i < block->length; i++) {
        if (block->masked[i] && !run[i] &&
            (best < 0 ||
             (surest && urgency(block, seen, i) > urgency(block, seen, (uint32_t)best)))) {
            best = (int32_t)i;
        }
    }
    return best;
}

void positions_leave(struct positions *p, uint32_t slot, struct request *request, uint32_t most,
                     bool surest) {
    const struct block_state *block = &p->blocks[slot];
    uint8_t *run = row(p, p->run, slot);
    uint32_t n = 0, n_masked = 0, seen = block->frontier < 0 ? 0 : (uint32_t)block->frontier + 1;
    for (uint32_t i = 0; i < block->length; i++) {
        n += run[i] && !block->masked[i];
        run[i] = run[i] && !block->masked[i];
    }
    while (n_masked < most && n_masked < block->n_masked) {
        const uint32_t next = (uint32_t)next_to_run(block, seen_of(p, slot), run, surest);
        const bool lacks = lacks_row_before(p, run, next);
        run[next - lacks] = 1;
        n_masked++;
        if (lacks && n_masked < most) {
            run[next] = 1;
            n_masked++;
        }
    }
    for (uint32_t i = seen; i < block->length; i++) {
        seen = run[i] ? i + 1 : seen;
    }
    memcpy(row(p, p->keep, slot), run, block->length);
    window_list(request, n + n_masked, window_known(request));
    window_see(request, seen);
    keep_window(p, slot, request);
}

uint32_t positions_look(const struct positions *p, uint32_t slot, struct masked_seen *out,
                        uint32_t capacity) {
    const struct block_state *block = &p->blocks[slot];
    const float *seen = seen_of(p, slot);
    uint32_t n = 0;
    for (uint32_t i = 0; seen != NULL && i < block->length; i++) {
        if (block->masked[i] && n < capacity) {
            out[n] = (struct masked_seen){i, seen[i]};
        }
        n += block->masked[i];
    }
    return n;
}

void positions_run(struct positions *p, uint32_t slot, struct request *request) {
    uint32_t first = request->span.part_start, end = first + request->span.queries;
    if (request->rows.settles != BLOCK_PARTS || request->causal != SEES_BLOCKS) {
        return;
    }
    uint8_t *run = row(p, p->run, slot), *keep = row(p, p->keep, slot);
    for (uint32_t i = 0; i < p->blocks[slot].length; i++) {
        run[i] = run[i] && i >= first && i < end;
        keep[i] = keep[i] && run[i];
    }
    keep_window(p, slot, request);
}

struct planned_block positions_block(const struct positions *p, uint32_t slot) {
    return (struct planned_block){.n_fixed = p->blocks[slot].n_fixed,
                                  .masked = p->blocks[slot].masked,
                                  .run = row(p, p->run, slot),
                                  .keep = row(p, p->keep, slot),
                                  .outcome = row(p, p->outcome, slot),
                                  .entropy = entropy_of(p, slot),
                                  .confidence = confidence_of(p, slot),
                                  .seen = seen_of(p, slot),
                                  .bandit = bandit_of(p, slot)};
}

static void count_kept(const uint8_t *keep, uint32_t length, uint32_t *n_kept, uint32_t *reach) {
    uint32_t n = 0, end = length;
    for (uint32_t i = 0; i < length; i++) {
        n += keep[i] != 0;
    }
    while (end > 0 && !keep[end - 1]) {
        end--;
    }
    *n_kept = n;
    *reach = end;
}

void positions_kept(const struct positions *p, uint32_t slot, uint32_t *n_kept, uint32_t *reach) {
    count_kept(row(p, p->keep, slot), p->blocks[slot].length, n_kept, reach);
}

void positions_settle(const struct request *requests, const uint32_t *slots,
                      const struct planned_block *blocks, uint32_t n, int64_t sym[SYM_COUNT]) {
    for (uint32_t i = 0; i < n; i++) {
        const struct request *request = &requests[slots[i]];
        struct span span = request->span;
        uint32_t n_kept, reach;
        /* A single token is never evicted. */
        if (span.phase == PHASE_PREFILL || span.kept_queries == 0 ||
            request->causal == SEES_TOKENS) {
            continue;
        }
        shape_add(sym, &span, -1);
        count_kept(blocks[i].keep, window_length(request), &n_kept, &reach);
        span.kept_queries = n_kept;
        span.kept_keys = reach > 0 ? window_first(request) + reach : span.kept_keys;
        span.logit_rows = span.logit_rows < n_kept ? span.logit_rows : n_kept;
        shape_add(sym, &span, 1);
    }
}

bool positions_checks(const struct positions *p, uint32_t slot) {
    const struct block_state *block = &p->blocks[slot];
    return p->system->speculates && block->n_masked > 0 &&
           earlier_of(p, slot)[block->length - block->n_masked] > 0;
}

uint32_t positions_candidates(const struct positions *p, uint32_t slot) {
    const struct block_state *block = &p->blocks[slot];
    const uint8_t *keep = row(p, p->keep, slot);
    uint32_t n = 0;
    for (uint32_t i = 0; i < block->length; i++) {
        n += (keep[i] != 0) & (block->masked[i] != 0) & !lacks_row_before(p, keep, i);
    }
    return n;
}

/* Flags of the positions that stay and, of those still masked, have the row that decides on them.
 */
static const uint8_t *decidable(const struct positions *p, uint32_t slot) {
    const uint8_t *keep = row(p, p->keep, slot);
    for (uint32_t i = 0; p->shifts && i < p->blocks[slot].length; i++) {
        p->decides[i] = keep[i] && !lacks_row_before(p, keep, i);
    }
    return p->shifts ? p->decides : keep;
}

/* As it was before the step that is over, which is the one that its decoder is asked about. */
static void go_before_step(const struct request *request, struct request *before) {
    *before = *request;
    before->steps--;
    if (request->span.phase != PHASE_PREFILL) {
        window_go_back(before);
    }
}

/* A decoder with code of its own decided on n positions, a record says another number: it is the
 * left-most ones that are added, the right-most that are taken back, so that what such a decoder
 * has finished with from left to right stays so. */
static void settle_count(uint8_t *picked, uint32_t n_seen, uint32_t n, uint32_t wanted) {
    for (uint32_t i = 0; i < n_seen && n < wanted; i++) {
        n += !picked[i];
        picked[i] = 1;
    }
    for (uint32_t i = n_seen; i > 0 && n > wanted; i--) {
        n -= picked[i - 1];
        picked[i - 1] = 0;
    }
}

/* What the decoder takes back after it chose, `before` the pass. */
static void take_back(struct positions *p, uint32_t slot, const struct request *before) {
    const struct planned_block block = positions_block(p, slot);
    const struct block_state *state = &p->blocks[slot];
    struct choice *choice = &p->choice;
    for (uint32_t i = 0; i < state->length; i++) {
        if (block.outcome[i] == OUTCOME_COMMIT) {
            block.confidence[i] = choice->confidence[i];
        }
    }
    const struct take_back of = {.length = state->length,
                                 .n_fixed = state->n_fixed,
                                 .masked = block.masked,
                                 .keep = block.keep,
                                 .confidence = block.confidence,
                                 .offsets = choice->offset,
                                 .values = choice->values[0],
                                 .again = choice->picked};
    take_back_ask(p->system->decoder, p->system->decoder_state, before, &of, block.outcome);
}

/* What the decoder revises of a pass that was drawn; tokens that it committed before hold what
 * their confidences say (process_revisions). */
static void revise(struct positions *p, uint32_t slot, const struct decode_rule *rule,
                   const struct decode_view *view) {
    const struct block_state *block = &p->blocks[slot];
    uint8_t *outcome = row(p, p->outcome, slot), *revised = p->choice.picked;
    float *held = confidence_of(p, slot);
    const uint32_t earlier = earlier_of(p, slot)[block->length];
    if (block->n_masked > 0 || earlier < rule->post_passes) {
        process_revisions(&p->system->process, p->seed, view, block->n_fixed, rule->edit, held,
                          revised);
        for (uint32_t i = 0; i < block->length; i++) {
            outcome[i] = revised[i] ? OUTCOME_REVISE : outcome[i];
        }
    }
    for (uint32_t i = 0; i < block->length; i++) {
        held[i] = outcome[i] == OUTCOME_COMMIT ? p->choice.confidence[i] : held[i];
    }
}

/* A position is masked again, by an insertion or at the block's end, if it may be. */
static void mask_at(struct positions *p, uint32_t slot, uint32_t i) {
    const struct block_state *block = &p->blocks[slot];
    uint8_t *outcome = row(p, p->outcome, slot);
    if (i >= block->n_fixed && !block->masked[i] && outcome[i] != OUTCOME_COMMIT) {
        outcome[i] = OUTCOME_AGAIN;
        row(p, p->added, slot)[i] = 1;
    }
}

/* The same where positions are inserted and dropped. What follows such a position moves, which is
 * not followed token by token: the position holds another token then, and is masked or the block's
 * last one is. */
static void move(struct positions *p, uint32_t slot, const struct decode_rule *rule,
                 const struct decode_view *view) {
    const struct block_state *block = &p->blocks[slot];
    uint8_t *outcome = row(p, p->outcome, slot), *edited = p->choice.picked;
    float *held = confidence_of(p, slot);
    process_revisions(&p->system->process, p->seed, view, block->n_fixed, rule->edit, held, edited);
    for (uint32_t i = 0; i < block->length; i++) {
        outcome[i] = edited[i] ? OUTCOME_REVISE : outcome[i];
    }
    for (uint32_t i = 0; i < block->length; i++) {
        const enum process_edit edit =
            edited[i] ? process_edit_at(&p->system->process, p->seed, view, i) : EDIT_REPLACE;
        if (edit != EDIT_REPLACE) {
            mask_at(p, slot, edit == EDIT_INSERT ? i : block->length - 1);
        }
    }
}

/* A pass of a decoder whose canvas moves. */
static void choose_moving(struct positions *p, uint32_t slot, const struct request *before,
                          const struct decode_view *view, const struct decode_seen *seen) {
    const struct block_state *block = &p->blocks[slot];
    const struct decode_rule rule =
        decoder_rule(p->system->decoder, p->system->decoder_state, before);
    const uint8_t *added = row(p, p->added, slot);
    uint8_t *outcome = row(p, p->outcome, slot);
    float *held = confidence_of(p, slot);
    bool is_round = true;
    for (uint32_t k = 0; k < seen->n; k++) {
        is_round = is_round && added[seen->offset[k]];
    }
    if (seen->n > 0) {
        (void)moving_fill(&rule, seen, added, p->choice.picked);
        (void)choice_mark(&p->choice, block->length, outcome);
    }
    p->rounds[slot] += is_round;
    const bool may_edit = p->rounds[slot] <= rule.post_passes &&
                          window_steps(before) <= block->length + rule.post_passes;
    if (block->is_revised && may_edit) {
        move(p, slot, &rule, view);
    }
    for (uint32_t i = 0; i < block->length; i++) {
        held[i] = outcome[i] == OUTCOME_COMMIT ? p->choice.confidence[i] : held[i];
    }
}

/* Whether a request says anything of what its confidences are by. */
static bool asks_own(const struct sampling *asked) {
    return asked->temperature > 0 || asked->top_k > 0 || asked->top_p > 0;
}

/* Marks what the decoder takes of what is seen, as many as wanted where their number is known. */
static void pick(struct positions *p, const struct request *before, const struct decode_rule *rule,
                 const struct decode_seen *seen, uint32_t count) {
    const struct decoder *decoder = p->system->decoder;
    const uint32_t n_wanted = count < seen->n ? count : seen->n;
    uint8_t *picked = p->choice.picked;
    struct decode_rule by_count = *rule;
    by_count.kind = DECODE_COUNT;
    if (decoder->count != NULL) {
        (void)decode_choose(rule, seen, n_wanted, picked);
    } else if (decoder->choose != NULL) {
        uint32_t n = decoder->choose(p->system->decoder_state, before, seen, picked);
        settle_count(picked, seen->n, n, count > 0 ? n_wanted : n);
    } else if (decode_choose(rule, seen, even_steps_least(before, rule), picked) != n_wanted &&
               count > 0) {
        (void)decode_choose(&by_count, seen, n_wanted, picked);
    }
}

/* Whether a check accepts the draft of position i. Its row sees what is before it, and of what
 * follows nothing; the pass before drafted with as many masks as there are. */
static bool accepts(struct positions *p, const struct decode_view *view, uint32_t i, float draft) {
    const struct decode_process *process = &p->system->process;
    const struct speculation *numbers = p->system->decoder_state;
    const uint32_t position = view->block_start + i;
    float *room = p->choice.confidence;
    struct decode_view drafted = *view, alone = *view;
    uint8_t *masked = p->alone, *wanted = p->alone + view->block_length;
    memset(masked, 0, i);
    memset(masked + i, 1, view->block_length - i);
    memset(wanted, 0, view->block_length);
    wanted[i] = 1;
    alone.masked = masked;
    alone.wanted = drafted.wanted = wanted;
    drafted.step_in_block--;
    drafted.step--;
    if (numbers->accept == ACCEPT_RATIO) {
        return process_accepts(process, p->seed, &drafted, &alone, i, draft, room);
    }
    process_confidence(process, p->seed, &alone, room);
    return process_is_settled(p->seed, view->request, position, room[i]) ==
           process_is_settled(p->seed, view->request, position, draft);
}

/* A pass that drafts, and commits nothing where the next one checks it; or that check: drafts of
 * the first run up to the first that it does not accept, which is committed as its row has it. */
static void speculate(struct positions *p, uint32_t slot, const struct request *before,
                      const struct decode_view *view, const struct decode_seen *seen) {
    const struct decode_rule rule =
        decoder_rule(p->system->decoder, p->system->decoder_state, before);
    float *drafts = seen_of(p, slot);
    uint8_t *picked = p->choice.picked;
    memset(picked, 0, seen->n);
    if (!positions_checks(p, slot)) {
        for (uint32_t k = 0; k < seen->n; k++) {
            drafts[seen->offset[k]] = seen->confidence[k];
        }
        if (!speculation_checks(p->system->decoder_state, before, seen, p->system->whole->vocab,
                                bandit_of(p, slot))) {
            (void)decode_choose(&rule, seen, 0, picked);
        }
        return;
    }
    bool stands = true;
    for (uint32_t k = 0; k < speculation_run(seen) && stands; k++) {
        const uint32_t i = seen->offset[k];
        picked[k] = 1;
        stands = accepts(p, view, i, drafts[i]);
    }
}

/* Of a decoder that counts: whether it takes the surest, and these are known by their draws. */
static bool ranks_by_draws(const struct positions *p, const struct decode_rule *rule,
                           const struct decode_view *view) {
    return rule->rank == RANK_CONFIDENCE && rule->temperature == 0 &&
           process_ranks_by_draws(&p->system->process, view);
}

/* By a rule, among what is seen: commits, and what of the block is revised or taken back. */
static void choose_by(struct positions *p, uint32_t slot, const struct request *before,
                      const struct decode_view *view, struct decode_rule rule,
                      const struct decode_seen *seen, uint32_t count) {
    const struct settings *settings = &p->system->settings;
    if (settings->iteration == ITERATION_SMOOTH) {
        rule.threshold = smoothing_threshold(&settings->smoothing, before->steps, rule.threshold);
    }
    pick(p, before, &rule, seen, count);
    (void)choice_mark(&p->choice, p->blocks[slot].length, row(p, p->outcome, slot));
    if (p->blocks[slot].is_revised) {
        revise(p, slot, &rule, view);
    } else if (p->confidence != NULL) {
        take_back(p, slot, before);
    }
}

/* The decoder's choice among the masked positions that stay; `count` of them, where it is not 0.
 * Where a record says the number, the same confidences give the same choice. A device's confidences
 * are not recorded: of its records only the number is right. */
static void choose(struct positions *p, uint32_t slot, const struct request *request,
                   uint32_t count) {
    const struct settings *settings = &p->system->settings;
    const struct decoder *decoder = p->system->decoder;
    struct decode_view view = view_of(p, slot, request);
    const struct draw_rule drawing = system_drawing(p->system, &request->sampling);
    struct request before;
    view.drawing = asks_own(&request->sampling) ? &drawing : NULL;
    go_before_step(request, &before);
    const struct choice_asked asked = {
        .process = &p->system->process,
        .smoothing = settings->iteration == ITERATION_SMOOTH ? &settings->smoothing : NULL,
        .smoothing_step = window_steps(&before) > 0 ? before.steps : 0,
        .seed = p->seed,
        .view = &view,
        .block = &p->blocks[slot],
        .waiting = window_length(request) - window_active(request),
        .keep = decidable(p, slot),
        .reads_statistics = decoder->reads_statistics != 0 || p->entropy != NULL,
        .credit = p->earned != NULL ? &p->credit : NULL,
        .earned = earned_of(p, slot),
    };
    struct decode_rule rule = {0};
    if (p->by_order) {
        rule = decoder_rule(decoder, p->system->decoder_state, &before);
        if (ranks_by_draws(p, &rule, &view)) {
            choice_surest(&p->choice, &asked, count, row(p, p->outcome, slot));
            return;
        }
    }
    struct decode_seen seen;
    choice_see(&p->choice, &asked, &seen);
    if (p->system->moves) {
        choose_moving(p, slot, &before, &view, &seen);
        return;
    }
    if (p->system->speculates && seen.n > 0) {
        speculate(p, slot, &before, &view, &seen);
        (void)choice_mark(&p->choice, asked.block->length, row(p, p->outcome, slot));
        return;
    }
    for (uint32_t k = 0; p->seen != NULL && k < seen.n; k++) {
        seen_of(p, slot)[seen.offset[k]] = seen.confidence[k];
    }
    if (!p->by_order) {
        rule = decoder_rule(decoder, p->system->decoder_state, &before);
    }
    if (seen.n == 0) {
        if (p->blocks[slot].is_revised) {
            revise(p, slot, &rule, &view);
        }
        return;
    }
    choose_by(p, slot, &before, &view, rule, &seen, count);
    for (uint32_t i = 0; p->entropy != NULL && i < window_length(request); i++) {
        entropy_of(p, slot)[i] = -p->choice.entropy[i]; /* drawn as minus what a model's is */
    }
}

static void learn(struct positions *p, uint32_t slot, const struct request *request, uint32_t n) {
    const struct learned learned = {
        .n = n, .outcome = row(p, p->outcome, slot), .entropy = entropy_of(p, slot)};
    p->system->cache->learn(p->system->cache_state, memory_of(p, slot), request, &learned);
}

bool positions_pass(struct positions *p, uint32_t slot, const struct request *request, bool known,
                    uint32_t count, bool decides, struct outcomes *found) {
    struct block_state *block = &p->blocks[slot];
    const struct cache_policy *cache = p->system->cache;
    uint8_t *outcome = row(p, p->outcome, slot);
    if (!known) {
        memset(outcome, OUTCOME_NONE, block->length);
    }
    if (!known && decides) {
        choose(p, slot, request, count);
    }
    const uint32_t n_decided = block->length - block->n_masked;
    const bool drafts = p->checks != NULL && decides && !positions_checks(p, slot);
    if (!block_try(block, row(p, p->keep, slot), outcome, found)) {
        return false;
    }
    earlier_of(p, slot)[n_decided] += decides; /* one more pass with as many decided */
    uint32_t n = found->n[OUTCOME_COMMIT];
    if (drafts) {
        p->checks[slot] = n == 0;
    }
    if (p->bandits != NULL && decides && n > 0) {
        bandit_learn(&p->bandits[slot], n);
    }
    if (decides && n > 0 && cache->learn != NULL) {
        learn(p, slot, request, n);
    }
    return true;
}
