/* SPDX-License-Identifier: Apache-2.0
 *
 * What tokenizer_config.json of a tokenizer's folder says, as Hugging Face writes
 * it. The file need not be there.
 *
 * Threads: any, one at a time for a file. Test: tests/unit/test_tokenizer.c
 */
#ifndef GP_TOKENIZER_CONFIG_H
#define GP_TOKENIZER_CONFIG_H

#include <jansson.h>

#include "client/text/text_file.h"

struct gp_tokenizer_config {
	char path[GP_TEXT_PATH];
	json_t *root; /* an object; NULL: there is no file */
};

/* GP_INVALID names the file and its line. gp_tokenizer_config_deinit after success. */
enum gp_status gp_tokenizer_config_read(const char *folder, struct gp_tokenizer_config *out, struct gp_err *err);
void gp_tokenizer_config_deinit(struct gp_tokenizer_config *c);
/* *out stays as it is where the key is not there, or null. GP_INVALID: it is neither true nor false. */
enum gp_status gp_tokenizer_config_flag(const struct gp_tokenizer_config *c, const char *key, bool *out,
					struct gp_err *err);

#endif
