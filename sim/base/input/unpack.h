/* Files that may be compressed: gzip and Zstandard are recognised by their first bytes and read as
 * what is in them. */
#ifndef UNMASK_SIM_BASE_INPUT_UNPACK_H
#define UNMASK_SIM_BASE_INPUT_UNPACK_H

#include <stdio.h>

/* Opens a file for reading, for fclose, and notes it in its role (inputs.h; NULL: not); NULL with
 * errno as fopen has it. It can be read again from its begin where the file can. What is damaged or
 * cut off fails to be read with errno EBADMSG, after the undamaged part. */
FILE *unpack_open(const char *path, const char *role);

#endif
