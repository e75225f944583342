/* SPDX-License-Identifier: Apache-2.0
 *
 * See tokenizer_config.h. Test: tests/unit/test_tokenizer.c
 */
#include "client/text/tokenizer_config.h"

#include "common/base/mem.h"

enum { BYTES_MOST = 1 << 20 };

static enum gp_status parse(const char *path, const char *text, size_t bytes, json_t **out, struct gp_err *err)
{
	json_error_t why;
	char shown[GP_SHOWN];
	struct gp_text whole = {text, bytes};
	GP_TRY(gp_text_check(path, &whole, err));
	json_t *root = json_loadb(whole.at, whole.len, 0, &why);
	if (!root)
		GP_FAIL(err, GP_INVALID, "%s:%d: %s", path, why.line, gp_text_shown(gp_text_of(why.text), shown));
	if (!json_is_object(root)) {
		json_decref(root);
		GP_FAIL(err, GP_INVALID, "%s: an object is expected", path);
	}
	*out = root;
	return GP_OK;
}

enum gp_status gp_tokenizer_config_read(const char *folder, struct gp_tokenizer_config *out, struct gp_err *err)
{
	char *text;
	size_t bytes;
	*out = (struct gp_tokenizer_config){.root = NULL};
	GP_TRY(gp_text_path(folder, "tokenizer_config.json", out->path, err));
	if (!gp_text_file_there(out->path))
		return GP_OK;
	GP_TRY(gp_text_file_read(out->path, BYTES_MOST, &text, &bytes, err));
	const enum gp_status status = parse(out->path, text, bytes, &out->root, err);
	gp_free(text);
	return status;
}

void gp_tokenizer_config_deinit(struct gp_tokenizer_config *c)
{
	json_decref(c->root);
	c->root = NULL;
}

enum gp_status gp_tokenizer_config_flag(const struct gp_tokenizer_config *c, const char *key, bool *out,
					struct gp_err *err)
{
	const json_t *value = c->root ? json_object_get(c->root, key) : NULL;
	if (!value || json_is_null(value))
		return GP_OK;
	if (!json_is_boolean(value))
		GP_FAIL(err, GP_INVALID, "%s: \"%s\" is neither true nor false", c->path, key);
	*out = json_is_true(value);
	return GP_OK;
}
