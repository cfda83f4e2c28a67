/* Reading systems.ini and calibrated.ini: internal to the composition of a system. */
#ifndef UNMASK_SIM_SYSTEM_SYSTEM_FILE_H
#define UNMASK_SIM_SYSTEM_SYSTEM_FILE_H

#include "sim/system/system.h"

/* The shipped systems and one's own beside them. A section of one's own hides the shipped one of
 * its name, which may be its base. */
struct system_files {
    struct config own, shipped, constants; /* `own`: empty where there is none */
};

/* `own_path` NULL: the shipped systems alone. On success the caller runs system_files_close. */
int system_files_read(const char *own_path, struct system_files *out, struct err *err);
void system_files_close(struct system_files *files);

/* The keys of section `name`, its bases' first, remembered in `s`; those for another GPU are left
 * out. */
int system_take_section(struct system *s, const struct system_files *files, const char *name,
                        struct err *err);

/* Replace "$NAME" by the calibrated constant of that name and note that it is in force. */
int system_expand(struct system *s, const struct config *constants, struct setting *setting,
                  struct err *err);

/* The setting of that key in force, or NULL: the part has its own value. */
const struct setting *system_applied(const struct system *s, const char *key);

/* The nearest `model` along the chain of bases, or NULL. */
const char *system_file_model(const struct system_files *files, const char *name);

/* Remember a setting of the present layer; the last writer of a key wins. Choosing a part anew
 * drops its parameters of earlier layers, so that lines of one section may come in any order. */
int system_remember(struct system *s, const struct setting *setting, struct err *err);

#endif
