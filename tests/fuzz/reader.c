#include "tests/fuzz/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];
static pid_t owner;

static void remove_folder(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (getpid() == owner && system(command) != 0) {
        fprintf(stderr, "cannot remove %s\n", folder);
    }
}

static const uint64_t nothing = UINT64_C(0xcbf29ce484222325);
static uint64_t seen = UINT64_C(0xcbf29ce484222325);

void reader_see(const void *bytes, size_t size) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; i++) {
        seen = (seen ^ at[i]) * UINT64_C(0x100000001b3);
    }
}

void reader_see_double(double value) {
    char text[32];
    snprintf(text, sizeof text, "%.9g", value);
    reader_see_text(text);
}

uint64_t reader_seen(void) {
    const uint64_t digest = seen;
    seen = nothing;
    return digest;
}

const struct reader *reader_at(size_t i) {
    static const struct reader *const all[] = {readers_of_traces, readers_of_sim, readers_of_engine,
                                               readers_of_experiments, readers_of_stores};
    for (size_t part = 0; part < sizeof all / sizeof all[0]; part++) {
        for (const struct reader *reader = all[part]; reader->name != NULL; reader++) {
            if (i-- == 0) {
                return reader;
            }
        }
    }
    return NULL;
}

const struct reader *reader_find(const char *name) {
    const struct reader *reader;
    for (size_t i = 0; (reader = reader_at(i)) != NULL; i++) {
        if (strcmp(reader->name, name) == 0) {
            return reader;
        }
    }
    return NULL;
}

const char *reader_beside(const char *path, const char *name, char out[128]) {
    snprintf(out, 128, "%.*s/%s", (int)(strrchr(path, '/') - path), path, name);
    return out;
}

/* A new file each time: what keeps what it read knows files by inode and time. */
void reader_try(const struct reader *reader, const uint8_t *data, size_t size) {
    if (owner != getpid()) {
        owner = getpid();
        snprintf(folder, sizeof folder, "%s/unmask-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        ASSERT(mkdtemp(folder) != NULL && atexit(remove_folder) == 0);
    }
    if (reader->file == NULL) {
        reader->read(NULL, data, size);
        return;
    }
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, reader->file);
    FILE *file = fopen(path, "wb");
    ASSERT(file != NULL);
    size_t written = fwrite(data, 1, size, file);
    ASSERT(fclose(file) == 0 && written == size);
    reader->read(path, data, size);
    unlink(path);
}
