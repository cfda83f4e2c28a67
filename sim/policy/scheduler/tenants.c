#include "sim/policy/scheduler/tenants.h"

static uint32_t index_of(const struct schedule_view *view, uint32_t slot) {
    return view->requests[slot].tenant % TENANTS;
}

/* Ranks a tenant anew, whose next request has that link, if it has any. */
static void rank(struct tenants *tenants, uint32_t index, uint32_t next, double counter) {
    struct tenant *tenant = &tenants->of[index];
    if (tenant->next != 0) {
        ranks_drop(&tenants->waiting, tenants->ranked, index);
    }
    if (next != 0) {
        ranks_put(&tenants->waiting, tenants->ranked, index, counter);
    }
    tenant->next = next;
}

void tenants_told(struct tenants *tenants, const struct schedule_view *view,
                  const struct happening *h, double cost) {
    const uint32_t index = index_of(view, h->slot), first = tenants->waiting.first;
    struct tenant *tenant = &tenants->of[index];
    if (h->kind == HAPPENED_ARRIVAL) {
        const double least = tenants->of[first != 0 ? first - 1 : tenants->last_left].counter;
        tenant->counter = tenant->next == 0 && tenant->counter < least ? least : tenant->counter;
        line_append(&tenant->line, view->own, h->slot);
    } else if (h->kind == HAPPENED_START ||
               (h->kind == HAPPENED_END && view->requests[h->slot].state != REQUEST_DONE)) {
        line_drop(&tenant->line, view->own, h->slot);
        tenants->last_left = index;
    }
    tenant->counter += cost;
    rank(tenants, index, tenant->line.first, tenant->counter);
}

uint32_t tenants_next(const struct tenants *tenants) {
    const uint32_t first = tenants->waiting.first;
    return first != 0 ? tenants->of[first - 1].next : 0;
}

void tenants_start(struct tenants *tenants, const struct schedule_view *view, uint32_t slot,
                   double cost) {
    const struct lined *own = view->own;
    const uint32_t index = index_of(view, slot);
    rank(tenants, index, own[slot].after, tenants->ranked[index].key + cost);
}

void tenants_end(struct tenants *tenants, const struct schedule_view *view,
                 const struct batch *batch) {
    for (uint32_t i = batch->n - batch->n_admitted; i < batch->n; i++) {
        const uint32_t index = index_of(view, batch->selected[i]);
        rank(tenants, index, tenants->of[index].line.first, tenants->of[index].counter);
    }
}
