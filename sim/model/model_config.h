/* A model out of the config.json of a Hugging Face checkpoint: its family says what is called what
 * in it, and what holds where it says nothing. */
#ifndef UNMASK_SIM_MODEL_MODEL_CONFIG_H
#define UNMASK_SIM_MODEL_MODEL_CONFIG_H

#include "sim/model/model.h"

/* Reads the file's values and its family's defaults; `model->stated` tells them apart. It need not
 * be a whole model. ERR_WORLD where it cannot be read, or says what no model of the family is or
 * what the engine does not run. Called with the catalogue's lock held, or by one thread alone. */
int model_config_read(const char *path, const char *role, struct model *model, struct err *err);

/* The same as a whole model. */
int model_config_find(const char *path, void *model, struct err *err);

/* 0 if `model` is what a checkpoint's config.json, read from `path`, says of it; ERR_WORLD naming
 * the first difference. Of a rank's share only what is not divided is looked at. */
int model_agree(const struct model *model, const struct model *config, const char *path,
                struct err *err);

/* The bit of `stated` that a key of a model has. */
uint64_t model_param_bit(const char *name);

#endif
