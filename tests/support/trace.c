/* Says which basic blocks of a library a process ran: for a build with
 * -fsanitize-coverage=trace-pc, whose blocks each begin with a call of __sanitizer_cov_trace_pc.
 * The file $UNMASK_TRACE has a byte for every byte of the library's text, 1 where such a call
 * returned to; it is shared by all processes of a test, so that what a killed one ran is known,
 * too. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TEXT_BYTES = 16 << 20 };

void __sanitizer_cov_trace_pc(void);

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
static unsigned char *seen;

__attribute__((constructor)) static void trace_begin(void) {
    const char *path = getenv("UNMASK_TRACE");
    int file = path != NULL ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file >= 0 && ftruncate(file, TEXT_BYTES) == 0) {
        void *map = mmap(NULL, TEXT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        seen = map != MAP_FAILED ? map : NULL;
    }
    if (file >= 0) {
        close(file);
    }
}

void __sanitizer_cov_trace_pc(void) {
    uintptr_t at = (uintptr_t)__builtin_return_address(0) - (uintptr_t)__ehdr_start;
    if (seen != NULL && at < TEXT_BYTES) {
        seen[at] = 1;
    }
}
