/* Every reader over its kept corpus: what the fuzzer found worth keeping, without a fuzzer. Run
 * from the repository root. */
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/base/mem.h"
#include "tests/fuzz/reader.h"
#include "tests/support/archive.h"
#include "tests/support/kept.h"

enum { MOST_NAME = 64 };

/* Moves to the next case of a reader, a file in the folder of its name; false after the last. */
static bool case_next(struct archive *cases, const struct reader *reader) {
    const size_t n = strlen(reader->name);
    while (archive_next(cases)) {
        if (strncmp(cases->name, reader->name, n) == 0 && cases->name[n] == '/') {
            return true;
        }
    }
    return false;
}

static const char *case_name(const struct archive *cases) {
    return strchr(cases->name, '/') + 1;
}

static void try_case(const struct reader *reader, const struct archive *cases) {
    uint8_t *exact = malloc(cases->size + (cases->size == 0)); /* reading behind it is noticed */
    ck_assert_ptr_nonnull(exact);
    memcpy(exact, cases->bytes, cases->size);
    reader_try(reader, exact, cases->size);
    free(exact);
}

#define CORPUS "tests/fuzz/corpus.tar.gz"

static struct archive cases;

enum { MOST_READERS = 32 };

TEST_EACH(every_reader_survives_its_corpus, MOST_READERS) {
    const struct reader *reader = reader_at((size_t)_i);
    if (reader == NULL) {
        return;
    }
    /* In a process of its own, so that the case that ends it is named. */
    char *trying = mmap(NULL, MOST_NAME, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(trying != MAP_FAILED);
    archive_open(&cases, CORPUS);
    const pid_t child = fork();
    ck_assert(child >= 0);
    if (child == 0) {
        ASSERT(freopen("/dev/null", "w", stdout) != NULL); /* commands print */
        while (case_next(&cases, reader)) {
            snprintf(trying, MOST_NAME, "%s", case_name(&cases));
            try_case(reader, &cases);
        }
        archive_close(&cases);
        exit(0);
    }
    archive_close(&cases);
    int status;
    ck_assert(waitpid(child, &status, 0) == child);
    ck_assert_msg(trying[0] != '\0', "the corpus of %s has no case", reader->name);
    ck_assert_msg(status == 0, "%s does not survive its case %s", reader->name, trying);
    munmap(trying, MOST_NAME);
}

/* A database that is damaged byte by byte differs with the build that recorded it. */
TEST(every_reader_makes_of_its_corpus_what_it_made_of_it) {
    char *now;
    size_t size;
    FILE *out = mem_stream(&now, &size);
    const struct reader *reader;
    ck_assert(freopen("/dev/null", "w", stdout) != NULL);
    for (size_t i = 0; (reader = reader_at(i)) != NULL; i++) {
        if (strcmp(reader->name, "store") == 0) {
            continue;
        }
        archive_open(&cases, CORPUS);
        while (case_next(&cases, reader)) {
            (void)reader_seen();
            try_case(reader, &cases);
            fprintf(out, "%s %s %016" PRIx64 "\n", reader->name, case_name(&cases), reader_seen());
        }
        archive_close(&cases);
    }
    mem_stream_close(out);
    kept_same("tests/golden/corpus.txt", now);
    free(now);
}

TEST(there_is_no_more_than_the_suite_looks_at) {
    ck_assert(reader_at(MOST_READERS) == NULL && reader_at(0) != NULL);
}

SUITE("corpus")
