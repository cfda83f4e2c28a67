/* The template decoder, which writes the number of its process to the file in UNMASK_COUNTED each
 * time that it is loaded. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/plugins/template_decoder.c"

__attribute__((constructor)) static void count(void) {
    const char *path = getenv("UNMASK_COUNTED");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;
    if (file != NULL) {
        fprintf(file, "%ld\n", (long)getpid());
        fclose(file);
    }
}
