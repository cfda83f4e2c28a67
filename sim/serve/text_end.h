/* The end of a request's text, among the positions that it has to decode: where it is taken from,
 * when the server can know it, and which of the request's work comes after it.
 *
 * The end is a position of the output: the answer is all up to and including it. Where a device
 * decodes and looks for the model's end-of-text tokens it has the word; else a decode trace that
 * recorded ends; else the workload. Only the loop sees it before it is decoded: policies find it in
 * request->answer_tokens, and only where the system stops there (settings.early_stop). */
#ifndef UNMASK_SIM_SERVE_TEXT_END_H
#define UNMASK_SIM_SERVE_TEXT_END_H

#include "sim/serve/lifecycle.h"

/* A request arrives: what its answer is as far as the workload says. */
void text_end_open(struct lifecycle *life, uint32_t slot, const struct arrival *arrival);

/* One past the end of text in the canvas, for drawing a model's output at the positions after it;
 * UINT32_MAX where a device decides or the text fills the output. */
uint32_t text_end_drawn(const struct lifecycle *life, uint32_t slot);

/* Whether ends of texts matter: the system stops there, or a device looks for them. */
static inline bool text_end_matters(const struct lifecycle *life) {
    return life->system->settings.early_stop != STOP_NEVER ||
           life->asked->executor.find_end != NULL;
}

/* To be called when positions of the request were committed: notes an end of text that is decoded
 * by now. */
int text_end_look(struct lifecycle *life, uint32_t slot, struct err *err);

/* Whether no block that passes decide on is left after the first, once an end of text is decided.
 */
static inline bool text_end_is_last(const struct lifecycle *life, uint32_t slot) {
    const struct request *request = &life->requests[slot];
    return life->system->settings.early_stop != STOP_WINDOW ||
           window_first(request) + window_front(request) >= life->tracked[slot].last_end;
}

/* Whether the request is done, even if its active block is not. */
static inline bool text_end_stops(const struct lifecycle *life, const struct request *request) {
    return life->system->settings.early_stop == STOP_POSITION && request->answer_tokens > 0;
}

/* Whether the text ended in a ring of static shape where blocks wait: they run with its last one,
 * so that no pass would store that alone, and the request is done. */
static inline bool text_end_is_in_ring(const struct lifecycle *life,
                                       const struct request *request) {
    const struct settings *settings = &life->system->settings;
    return settings->static_blocks && settings->blocks_in_flight > 1 &&
           request->answer_tokens > 0 && window_end(request) < request->canvas_tokens;
}

/* Whether the active block lies after the end of text, so that its results are not read. */
static inline bool text_end_is_behind(const struct tracked *tracked,
                                      const struct request *request) {
    return window_first(request) >= request->prompt_tokens + tracked->answer_tokens;
}

#endif
