#include "experiments/study/collectives.h"

#include <string.h>

#include "sim/base/input/csv.h"
#include "sim/base/input/datadir.h"
#include "sim/base/num.h"
#include "sim/price/link.h"

enum { GPU, PEERS, GPUS, OP, BYTES, MEASURED, SOURCE };
static const char *const columns[] = {"gpu",   "peers",       "gpus",   "op",
                                      "bytes", "measured_us", "source", NULL};

/* Peers of its own: of a driver that allows what its maker's does not. */
static int add_row(struct csv *csv, struct table *table, struct err *err) {
    const struct gpu *found = gpu_find(csv_field(csv, GPU), err);
    int64_t ranks = 0, bytes = 0;
    double us = 0;
    if (found == NULL || csv_whole(csv, GPUS, 2, 1024, &ranks, err) != 0 ||
        csv_whole(csv, BYTES, 1, INT64_C(1) << 40, &bytes, err) != 0) {
        return err_status(err);
    }
    if (!num_f64(csv_field(csv, MEASURED), &us) || us <= 0) {
        return csv_bad(csv, MEASURED, "a time in microseconds", err);
    }
    struct gpu gpu = *found;
    if (csv_field(csv, PEERS)[0] != '\0') {
        gpu.link_peers = strcmp(csv_field(csv, PEERS), "on") == 0;
    }
    char link[64];
    const bool reduces = strcmp(csv_field(csv, OP), "all_reduce") == 0;
    const double modelled_us = 1e-3 * link_ns(&gpu, (uint32_t)ranks, (double)bytes, reduces);
    table_add(table, "s s i i %.4g %.4g %.2f s", gpu.name, link_words(&gpu, link, sizeof link),
              ranks, bytes, us, modelled_us, modelled_us / us, csv_field(csv, SOURCE));
    return 0;
}

struct table *collectives_table(struct err *err) {
    char path[512];
    struct csv csv;
    struct table *table = NULL;
    data_path(path, sizeof path, "experiments/study/reference/collectives.csv");
    int status = csv_open(&csv, path, "measurements", err);
    if (status == 0) {
        bool more = true;
        table = table_open("GPU|link|GPUs|bytes|measured_us|modelled_us|off|source");
        status = csv_first(&csv, columns, 0, true, err);
        while (status == 0 && (status = csv_line(&csv, &more, err)) == 0 && more) {
            status = csv_row(&csv, err);
            status = status == 0 ? add_row(&csv, table, err) : status;
        }
        csv_close(&csv);
    }
    if (status != 0) {
        table_close(table);
        table = NULL;
    }
    return table;
}
