/* The template decoder, which writes a line to the file in UNMASK_COUNTED each time that a process
 * loads it. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/plugins/template_decoder.c"

__attribute__((constructor)) static void count(void) {
    const char *path = getenv("UNMASK_COUNTED");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;
    if (file != NULL) {
        fprintf(file, "loaded\n");
        fclose(file);
    }
}
