#include "sim/serve/recall.h"

#include <inttypes.h>
#include <stddef.h>

int recall_open(struct recall *recall, const struct decode_source *source,
                const struct request *request, bool stops, struct err *err) {
    uint64_t tokens, answer = 0;
    uint32_t wanted = request->output_tokens;
    int status = source->tokens(source->state, request->id, &tokens, err);
    if (status == 0 && source->answer != NULL) {
        status = source->answer(source->state, request->id, &answer, err);
    }
    bool ends = answer > 0 && answer < wanted;
    if (status == 0 && tokens != wanted && !(ends && stops && tokens < wanted)) {
        status = err_world(err,
                           "%s commits %" PRIu64 " tokens of request %" PRIu64
                           ", the workload wants %" PRIu32 ": it was recorded with another one%s",
                           source->name, tokens, request->id, wanted,
                           ends && tokens < wanted ? ", or by a system that stops early" : "");
    }
    recall->is_open = status == 0;
    recall->tokens = status == 0 ? (uint32_t)tokens : 0;
    recall->answer_tokens = ends ? (uint32_t)answer : wanted;
    return status;
}

void recall_forget(struct recall *recall) {
    recall->lost = true;
}

/* Passes are counted from 1 in sentences. */
static int misfit(const struct decode_source *source, const struct request *request, uint32_t index,
                  const char *what, uint32_t n, const char *where, uint32_t of, struct err *err) {
    return err_world(
        err,
        "%s: pass %" PRIu64 " of request %" PRIu64 " %s %" PRIu32 " position%s, where %s %" PRIu32
        ": prompts or cache policy are not those it was recorded with",
        source->name, (uint64_t)index + 1, request->id, what, n, n == 1 ? "" : "s", where, of);
}

static int check(const struct decode_pass *pass, uint32_t index, const struct decode_source *source,
                 const struct request *request, struct err *err) {
    static const char masked[] = "the masked ones of its block are";
    if (pass->processed > window_length(request)) {
        return misfit(source, request, index, "runs", pass->processed, "those of its block are",
                      window_length(request), err);
    }
    if (pass->reach > window_length(request)) {
        return misfit(source, request, index, "reaches over", pass->reach, "those of its block are",
                      window_length(request), err);
    }
    uint32_t end = window_end(request);
    bool is_commit_pass = !window_is_open(request), is_edit_pass = window_masked(request) == 0;
    bool may_yield =
        is_commit_pass && window_begins_decided(request) && end < request->canvas_tokens;
    bool may_be_none = may_yield || ((source->takes_back || is_edit_pass) && !is_commit_pass);
    if (pass->committed > window_masked(request) + may_yield ||
        ((pass->committed == 0) != is_commit_pass && !may_be_none)) {
        return misfit(source, request, index, "commits", pass->committed, masked,
                      window_masked(request), err);
    }
    if (pass->unmasked > window_decided(request)) {
        return misfit(source, request, index, "masks again", pass->unmasked,
                      "the decided ones of its block are", window_decided(request), err);
    }
    if (pass->revised > (window_is_revised(request) ? window_decided(request) : 0)) {
        return misfit(source, request, index, "revises", pass->revised,
                      "those of its block that may be are",
                      window_is_revised(request) ? window_decided(request) : 0, err);
    }
    return 0;
}

int recall_plan(struct recall *recall, const struct decode_source *source, struct request *request,
                struct err *err) {
    struct decode_pass pass;
    int status = source->pass(source->state, request->id, recall->index, &pass, err);
    status = status != 0 ? status : check(&pass, recall->index, source, request, err);
    if (status != 0) {
        return status;
    }
    if (recall->lost) {
        pass.kept += window_length(request) - pass.processed;
        pass.reach = pass.reach > pass.kept ? pass.reach : pass.kept;
        pass.processed = window_length(request);
    }
    window_list(request, pass.processed,
                pass.processed < window_length(request) ? window_known(request) : 0);
    window_keep(request, pass.kept, pass.reach);
    recall->committed = pass.committed;
    recall->unmasked = pass.unmasked;
    recall->revised = pass.revised;
    return 0;
}

uint32_t recall_repeats(const struct recall *recall, const struct decode_source *source,
                        const struct request *request, uint32_t most) {
    struct decode_pass first, next;
    struct err ignored = {0};
    if (recall->lost ||
        source->pass(source->state, request->id, recall->index, &first, &ignored) != 0) {
        return 1;
    }
    uint32_t n = 1;
    while (n < most &&
           source->pass(source->state, request->id, recall->index + n, &next, &ignored) == 0 &&
           next.committed == first.committed && next.processed == first.processed &&
           next.kept == first.kept && next.reach == first.reach &&
           next.unmasked == first.unmasked && next.revised == first.revised) {
        n++;
    }
    return n;
}

void recall_skip(struct recall *recall, uint32_t passes) {
    recall->lost = false;
    recall->index += passes;
}

uint32_t recall_pass(struct recall *recall) {
    recall_skip(recall, 1);
    return recall->committed;
}
