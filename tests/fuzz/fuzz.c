/* The fuzz target: libFuzzer's two functions over the reader that UNMASK_READER names. Without a
 * name it lists the readers. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/reader.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct reader *chosen;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    const char *name = getenv("UNMASK_READER");
    chosen = name != NULL ? reader_find(name) : NULL;
    if (chosen == NULL) {
        const struct reader *reader;
        for (size_t i = 0; (reader = reader_at(i)) != NULL; i++) {
            puts(reader->name);
        }
        exit(name != NULL ? 2 : 0);
    }
    ASSERT(freopen("/dev/null", "w", stdout) != NULL); /* commands print */
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    reader_try(chosen, data, size);
    return 0;
}
