/* What the program calls of glibc that its version 2.28 lacks, made of what that has: linked into
 * the wheel's program alone. */
#include <malloc.h>

#ifdef __GLIBC__
/* The older function counts to 4 GiB. */
struct mallinfo2 mallinfo2(void) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    const struct mallinfo of = mallinfo();
#pragma GCC diagnostic pop
    return (struct mallinfo2){.arena = (unsigned)of.arena,
                              .ordblks = (unsigned)of.ordblks,
                              .smblks = (unsigned)of.smblks,
                              .hblks = (unsigned)of.hblks,
                              .hblkhd = (unsigned)of.hblkhd,
                              .usmblks = (unsigned)of.usmblks,
                              .fsmblks = (unsigned)of.fsmblks,
                              .uordblks = (unsigned)of.uordblks,
                              .fordblks = (unsigned)of.fordblks,
                              .keepcost = (unsigned)of.keepcost};
}
#endif
