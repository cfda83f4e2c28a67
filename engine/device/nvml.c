#include "engine/device/nvml.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "sim/base/mem.h"

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_INSUFFICIENT_SIZE = 7, /* there is one or more */
    NVML_CLOCK_SM = 1,
};

/* Reasons for a lower clock: by hardware (half, or less), heat (told by software, by hardware), an
 * external brake. */
static const unsigned long long slowed = 0x8 | 0x20 | 0x40 | 0x80;

typedef struct nvml_handle *nvml_device;

struct utilization {
    unsigned gpu, memory; /* percent */
};

struct nvml_card {
    void *library;
    nvml_device device;
    /* NULL: the library has none. */
    int (*shutdown)(void);
    int (*programs)(nvml_device, unsigned *, void *);
    int (*utilization)(nvml_device, struct utilization *);
    int (*reasons)(nvml_device, unsigned long long *);
    int (*clock)(nvml_device, int, unsigned *), (*most_clock)(nvml_device, int, unsigned *);
};

/* POSIX lets a pointer to data be one to a function. */
static void find(const struct nvml_card *card, const char *name, void *out) {
    void *symbol = dlsym(card->library, name);
    memcpy(out, &symbol, sizeof symbol);
}

static bool start(struct nvml_card *card, const char *bus) {
    int (*init)(void), (*by_bus)(const char *, nvml_device *);
    find(card, "nvmlInit_v2", &init);
    find(card, "nvmlDeviceGetHandleByPciBusId_v2", &by_bus);
    if (init == NULL || by_bus == NULL || init() != NVML_SUCCESS) {
        return false;
    }
    find(card, "nvmlShutdown", &card->shutdown);
    find(card, "nvmlDeviceGetComputeRunningProcesses_v3", &card->programs);
    find(card, "nvmlDeviceGetUtilizationRates", &card->utilization);
    find(card, "nvmlDeviceGetCurrentClocksEventReasons", &card->reasons); /* the newer name */
    if (card->reasons == NULL) {
        find(card, "nvmlDeviceGetCurrentClocksThrottleReasons", &card->reasons);
    }
    find(card, "nvmlDeviceGetClockInfo", &card->clock);
    find(card, "nvmlDeviceGetMaxClockInfo", &card->most_clock);
    return by_bus(bus, &card->device) == NVML_SUCCESS;
}

struct nvml_card *nvml_card_open(const char *library, const char *bus) {
    void *loaded = bus[0] != '\0' ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (loaded == NULL) {
        return NULL;
    }
    struct nvml_card *card = mem_zeroed(1, sizeof *card);
    card->library = loaded;
    if (!start(card, bus)) {
        nvml_card_close(card);
        return NULL;
    }
    return card;
}

void nvml_card_close(struct nvml_card *card) {
    if (card == NULL) {
        return;
    }
    if (card->shutdown != NULL) {
        (void)card->shutdown();
    }
    dlclose(card->library);
    free(card);
}

static double clock_by(int (*ask)(nvml_device, int, unsigned *), nvml_device device) {
    unsigned mhz = 0;
    return ask != NULL && ask(device, NVML_CLOCK_SM, &mhz) == NVML_SUCCESS ? (double)mhz : 0;
}

struct nvml_look nvml_card_look(const struct nvml_card *card) {
    struct nvml_look look = {.n_programs = -1, .busy_percent = -1};
    struct utilization busy = {0};
    unsigned long long why = 0;
    unsigned n = 0;
    if (card == NULL) {
        return look;
    }
    if (card->programs != NULL) {
        const int status = card->programs(card->device, &n, NULL);
        look.n_programs = status == NVML_SUCCESS                   ? 0
                          : status == NVML_ERROR_INSUFFICIENT_SIZE ? (int32_t)n
                                                                   : -1;
    }
    if (card->utilization != NULL && card->utilization(card->device, &busy) == NVML_SUCCESS) {
        look.busy_percent = (int32_t)busy.gpu;
    }
    if (card->reasons != NULL && card->reasons(card->device, &why) == NVML_SUCCESS) {
        look.is_slowed = (why & slowed) != 0;
    }
    look.clock_mhz = clock_by(card->clock, card->device);
    look.most_clock_mhz = clock_by(card->most_clock, card->device);
    return look;
}
