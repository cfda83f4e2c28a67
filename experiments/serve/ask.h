/* What a body asks for: a completion or a chat, in OpenAI's JSON, read by one table of fields.
 *
 * A field is read, or it has no model here and is taken at its neutral value alone, or it is a
 * label that changes nothing; any other field is refused. So nothing that a client asks for is
 * dropped. */
#ifndef UNMASK_EXPERIMENTS_SERVE_ASK_H
#define UNMASK_EXPERIMENTS_SERVE_ASK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "engine/weights/tokenizer.h"
#include "experiments/serve/replies.h"
#include "sim/base/sampling.h"

/* What the server can honour. */
struct ask_facts {
    const char *model; /* its name */
    uint32_t context_tokens, vocab, default_tokens;
    const struct system *system;
    bool is_device;      /* tokens are real: ids are of its vocabulary, and draws its own */
    bool looks_for_ends; /* of a device: some tokens end a text */
    bool takes_arrivals; /* the clock is virtual: arrival_us and request_id */
    const struct replies *replies;
};

struct ask {
    bool is_chat, streams, wants_usage, usage_each, ignores_end, has_seed, shows_stop;
    bool has_ids, has_max, has_max_new, has_arrival, has_request_id;
    uint64_t seed, request_id;
    int64_t arrival_ns;
    uint32_t output_tokens, min_tokens;
    struct sampling sampling;
    struct token_ids prompt; /* the caller's to free */
    char *stops;             /* as a call has them; the caller's to free */
};

/* As OpenAI says it. */
struct ask_error {
    int status;
    char param[64]; /* "": none */
    const char *type, *code;
    char message[1024];
};

/* Reads a body; false with `*error` filled. One caller at a time, as the tokenizer wants. */
bool ask_read(const struct ask_facts *facts, bool is_chat, const char *body, size_t size,
              struct ask *out, struct ask_error *error);

/* {"error": {...}}, which the caller frees. */
char *ask_error_text(const struct ask_error *error, size_t *size);

/* `error` filled. Returns false. */
bool ask_refuse(struct ask_error *error, int status, const char *param, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The table of fields, for the reference page. */
void ask_list(FILE *out);

#endif
