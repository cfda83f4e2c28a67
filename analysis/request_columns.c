/* The columns of a request, of sim/serve/request.def. */
#include <math.h>

#include "analysis/column.h"

static double seconds(double ns) {
    return ns >= 0 ? ns / 1e9 : (double)NAN;
}

static double request_arrival(const struct request_record *record) {
    return seconds((double)record->arrival_ns);
}

/* Of requests that were not completed nothing is known. */
static struct request_times times_of(const struct request_record *record) {
    return record->state == REQUEST_DONE
               ? request_times_of(record)
               : (struct request_times){
                     .latency_ns = -1, .queue_ns = -1, .ttfb_ns = -1, .tpot_ns = -1};
}

static double request_queue(const struct request_record *record) {
    return seconds((double)times_of(record).queue_ns);
}

static double request_ttft(const struct request_record *record) {
    return seconds((double)times_of(record).ttfb_ns);
}

static double request_tpot(const struct request_record *record) {
    return seconds(times_of(record).tpot_ns);
}

static double request_latency(const struct request_record *record) {
    return seconds((double)times_of(record).latency_ns);
}

#define AT(member)                                                                                 \
    .kind = COLUMN_KIND(((struct request_record *)0)->member),                                     \
    .offset = offsetof(struct request_record, member)
/* A kept column. */
#define ROW(name, label, unit, since_, before_, doc)                                               \
#name, label, unit, doc, NULL, AT(name), .since = (since_), .before = (before_)

const struct column request_columns[] = {
#define KEPT(type, name, since, before, doc) {ROW(name, NULL, "", since, before, doc)},
#define LINK(name, since, doc)               {ROW(name, NULL, "", since, "", doc), .less = 1},
#define SHOWN(type, name, since, before, unit, label, doc)                                         \
    {ROW(name, label, unit, since, before, doc)},
#define DERIVED(name, value, unit, label, doc)                                                     \
    {#name, label, unit, doc, NULL, .kind = COLUMN_DERIVED, .of_request = request_##value},
#include "sim/serve/request.def"
    {NULL},
};

int64_t column_whole(const struct column *column, const struct request_record *record) {
    const void *at = (const char *)record + column->offset;
    return column->kind == COLUMN_U32 ? *(const uint32_t *)at : *(const int64_t *)at;
}

void column_set_whole(const struct column *column, struct request_record *record, int64_t value) {
    void *at = (char *)record + column->offset;
    if (column->kind == COLUMN_U32) {
        *(uint32_t *)at = (uint32_t)value;
    } else {
        *(int64_t *)at = value;
    }
}
