#include "sim/serve/record.h"

const char *const reject_reason_names[REJECT_REASON_COUNT] = {
    "none", "context", "kv", "tokens", "activation", "queue", "shutdown",
};

const char *const event_kind_names[EVENT_KIND_COUNT] = {
    "arrival", "admit", "preempt", "reject", "block-done", "finish",
};
