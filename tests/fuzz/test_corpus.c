/* Every reader over its kept corpus: what the fuzzer found worth keeping, without a fuzzer. Run
 * from the repository root. */
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/base/mem.h"
#include "tests/fuzz/reader.h"
#include "tests/support/kept.h"

enum { MOST_NAME = 64 };

/* The cases of a reader, in the order of its archive: tests/fuzz/corpus/NAME.ar as GNU ar writes
 * it. `cases_open` sets all; `cases_next` moves `file` and writes the last two groups. */
struct cases {
    FILE *file;

    char long_names[1024]; /* of member "//": those of more than 15 bytes, each ended by "/\n" */

    char name[MOST_NAME];
    uint8_t bytes[1 << 16];
    size_t size; /* of the case, in bytes */
};

static void cases_open(struct cases *cases, const struct reader *reader) {
    char path[256], magic[8];
    snprintf(path, sizeof path, "tests/fuzz/corpus/%s.ar", reader->name);
    *cases = (struct cases){.file = fopen(path, "rb")};
    ck_assert_msg(cases->file != NULL, "%s is missing", path);
    ck_assert(fread(magic, 1, 8, cases->file) == 8 && memcmp(magic, "!<arch>\n", 8) == 0);
}

/* Reads the next member, a case or the long names: 0 behind the last. */
static int member_next(struct cases *cases) {
    char header[61] = "";
    const size_t n = fread(header, 1, 60, cases->file);
    if (n == 0) {
        return 0;
    }
    ck_assert(n == 60 && memcmp(header + 58, "`\n", 2) == 0);
    cases->size = strtoul(header + 48, NULL, 10);
    ck_assert(cases->size < sizeof cases->bytes);
    ck_assert(fread(cases->bytes, 1, cases->size, cases->file) == cases->size);
    ck_assert(cases->size % 2 == 0 || fgetc(cases->file) == '\n');
    const int is_long = header[0] == '/' && header[1] != '/';
    const size_t at = is_long ? strtoul(header + 1, NULL, 10) : 0;
    ck_assert(at < sizeof cases->long_names);
    const char *name = is_long ? cases->long_names + at : header;
    snprintf(cases->name, sizeof cases->name, "%.*s", (int)strcspn(name, "/"), name);
    return 1;
}

static int cases_next(struct cases *cases) {
    while (member_next(cases)) {
        if (cases->name[0] != '\0') {
            return 1;
        }
        ck_assert(cases->size < sizeof cases->long_names);
        memcpy(cases->long_names, cases->bytes, cases->size);
    }
    fclose(cases->file);
    return 0;
}

static void try_case(const struct reader *reader, const struct cases *cases) {
    uint8_t *exact = malloc(cases->size + (cases->size == 0)); /* reading behind it is noticed */
    ck_assert_ptr_nonnull(exact);
    memcpy(exact, cases->bytes, cases->size);
    reader_try(reader, exact, cases->size);
    free(exact);
}

static struct cases cases;

enum { MOST_READERS = 32 };

TEST_EACH(every_reader_survives_its_corpus, MOST_READERS) {
    const struct reader *reader = reader_at((size_t)_i);
    if (reader == NULL) {
        return;
    }
    /* In a process of its own, so that the case that ends it is named. */
    char *trying = mmap(NULL, MOST_NAME, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(trying != MAP_FAILED);
    cases_open(&cases, reader);
    const pid_t child = fork();
    ck_assert(child >= 0);
    if (child == 0) {
        ASSERT(freopen("/dev/null", "w", stdout) != NULL); /* commands print */
        while (cases_next(&cases)) {
            memcpy(trying, cases.name, MOST_NAME);
            try_case(reader, &cases);
        }
        exit(0);
    }
    fclose(cases.file);
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
        cases_open(&cases, reader);
        while (cases_next(&cases)) {
            (void)reader_seen();
            try_case(reader, &cases);
            fprintf(out, "%s %s %016" PRIx64 "\n", reader->name, cases.name, reader_seen());
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
