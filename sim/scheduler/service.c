#include "sim/scheduler/service.h"

double service_left(struct service *service, const struct schedule_view *view, uint32_t slot,
                    double *steps) {
    const struct request *request = &view->requests[slot];
    uint64_t place = request->id % SERVICE_REMEMBERED;
    double share = 1 - (double)request->committed_tokens / request->output_tokens;
    if (service->known[place].id != request->id + 1) {
        struct outlook outlook;
        view->foresee(view->estimator, slot, NULL, 0, &outlook);
        service->known[place].id = request->id + 1;
        service->known[place].tokens = (double)outlook.tokens / share;
        service->known[place].steps = (double)outlook.steps / share;
    }
    *steps = share * service->known[place].steps;
    return share * service->known[place].tokens;
}
