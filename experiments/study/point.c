#include "experiments/study/point.h"

int point_run(const struct run_request *request, struct point *out, struct err *err) {
    *out = (struct point){0};
    struct composition *composition = NULL;
    const struct run_watch unwatched = {0};
    int status = compose_open(request, &composition, err);
    if (status == 0) {
        status = compose_run(composition, &unwatched, err);
    }
    if (status == 0) {
        const struct summary *summary = &composition->summary;
        *out = (struct point){.throughput = summary->throughput_answer_tok_s,
                              .tpf = summary->tpf_answer,
                              .ms_per_forward = 1000 * summary->tpf / summary->throughput_tok_s};
    }
    compose_close(composition);
    return status;
}
