#include "sim/policy/request.h"

const char *const request_state_names[REQUEST_STATE_COUNT] = {"pending", "queued",    "running",
                                                              "done",    "preempted", "rejected"};
