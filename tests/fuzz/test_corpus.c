/* Every reader over its kept corpus: what the fuzzer found worth keeping, without a fuzzer. Run
 * from the repository root. */
#include <dirent.h>

#include <fcntl.h>
#include <inttypes.h>

#include "sim/base/mem.h"
#include "tests/fuzz/reader.h"
#include "tests/support/kept.h"

static void try_file(const struct reader *reader, const char *path) {
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    static uint8_t bytes[1 << 16];
    size_t size = fread(bytes, 1, sizeof bytes, file);
    ck_assert(size < sizeof bytes);
    fclose(file);
    uint8_t *exact = malloc(size + (size == 0)); /* so that reading behind it is noticed */
    ck_assert_ptr_nonnull(exact);
    memcpy(exact, bytes, size);
    reader_try(reader, exact, size);
    free(exact);
}

enum { MOST_READERS = 32 };

TEST_EACH(every_reader_survives_its_corpus, MOST_READERS) {
    const struct reader *reader = reader_at((size_t)_i);
    if (reader == NULL) {
        return;
    }
    char folder[256];
    snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", reader->name);
    DIR *entries = opendir(folder);
    ck_assert_msg(entries != NULL, "%s is missing", folder);
    ck_assert(freopen("/dev/null", "w", stdout) != NULL); /* commands print */
    size_t n = 0;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.') {
            try_file(reader, path);
            n++;
        }
    }
    closedir(entries);
    ck_assert_msg(n > 0, "%s is empty", folder);
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_file(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

/* A database that is damaged byte by byte differs with the build that recorded it. */
TEST(every_reader_makes_of_its_corpus_what_it_made_of_it) {
    char *now;
    size_t size;
    FILE *out = mem_stream(&now, &size);
    const struct reader *reader;
    ck_assert(freopen("/dev/null", "w", stdout) != NULL);
    for (size_t i = 0; (reader = reader_at(i)) != NULL; i++) {
        char folder[256], path[600];
        struct dirent **entries;
        snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", reader->name);
        int n =
            strcmp(reader->name, "store") != 0 ? scandir(folder, &entries, is_file, by_name) : 0;
        for (int k = 0; k < n; k++) {
            snprintf(path, sizeof path, "%s/%s", folder, entries[k]->d_name);
            (void)reader_seen();
            try_file(reader, path);
            fprintf(out, "%s %s %016" PRIx64 "\n", reader->name, entries[k]->d_name, reader_seen());
            free(entries[k]);
        }
        if (n > 0) {
            free(entries);
        }
    }
    mem_stream_close(out);
    kept_same("tests/golden/corpus.txt", now);
    free(now);
}

TEST(there_is_no_more_than_the_suite_looks_at) {
    ck_assert(reader_at(MOST_READERS) == NULL && reader_at(0) != NULL);
}

SUITE("corpus")
