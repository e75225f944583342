/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest of a checkpoint. See manifest.h.
 */
#include "common/store/manifest.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/text.h"

#define FORMAT     1
#define KEY_MAX    64                /* most characters of a name */
#define VALUE_MAX  GP_MANIFEST_VALUE /* most characters of a text */
#define HASH_CHARS 16

static const char *const roles[] = {[GP_MANIFEST_CLIENT] = "client", [GP_MANIFEST_SERVER] = "server"};

/* --- hex digits ------------------------------------------------------------------------------------------------- */

static bool read_hex(const char *text, size_t bytes, uint8_t *out)
{
	static const char digits[] = "0123456789abcdef";
	if (strlen(text) != 2 * bytes || strspn(text, digits) != 2 * bytes)
		return false;
	for (size_t i = 0; i < bytes; i++)
		out[i] = (uint8_t)((strchr(digits, text[2 * i]) - digits) << 4 |
				   (strchr(digits, text[2 * i + 1]) - digits));
	return true;
}

void gp_run_id_text(const uint8_t id[GP_RUN_ID_BYTES], char *hex)
{
	for (int i = 0; i < GP_RUN_ID_BYTES; i++)
		snprintf(hex + 2 * i, 3, "%02x", id[i]);
}

bool gp_run_id_parse(const char *hex, uint8_t id[GP_RUN_ID_BYTES])
{
	return read_hex(hex, GP_RUN_ID_BYTES, id);
}

/* --- pairs ------------------------------------------------------------------------------------------------------ */

const char *gp_pairs_find(const struct gp_pairs *p, const char *key)
{
	for (int i = 0; i < p->count; i++)
		if (strcmp(p->pair[i].key, key) == 0)
			return p->pair[i].value;
	return NULL;
}

void gp_pairs_add(struct gp_pairs *p, const char *key, const char *value)
{
	gp_require(p->count < GP_MANIFEST_PAIRS && !gp_pairs_find(p, key));
	p->pair[p->count++] = (struct gp_st_pair){key, value};
}

/* How many of the first bytes, which are the same in both, a message about two values that differ leaves out. */
static size_t skipped_prefix(const char *a, const char *b)
{
	enum { SHOWN = 20, SHORT = 60 };
	size_t n = 0;
	while (a[n] && a[n] == b[n])
		n++;
	return n > SHORT ? n - SHOWN : 0;
}

static enum gp_status fail_differing(const char *dashes, const char *key, const char *now, const char *run,
				     struct gp_err *err)
{
	const size_t from = skipped_prefix(now, run);
	const char *dots = from > 0 ? "..." : "";
	GP_FAIL(err, GP_INVALID, "%s%s is '%s%.80s', but the run has it at '%s%.80s'", dashes, key, dots, now + from,
		dots, run + from);
}

enum gp_status gp_pairs_compare(const struct gp_pairs *run, const struct gp_pairs *now, const char *dashes,
				struct gp_err *err)
{
	for (int i = 0; i < run->count; i++)
		if (!gp_pairs_find(now, run->pair[i].key))
			GP_FAIL(err, GP_INVALID,
				"the run was begun with %s%s '%.80s'; give it again or, if this version lacks it, "
				"resume with the version that wrote the checkpoint",
				dashes, run->pair[i].key, run->pair[i].value);
	for (int i = 0; i < now->count; i++) {
		const struct gp_st_pair *p = &now->pair[i];
		const char *before = gp_pairs_find(run, p->key);
		if (!before)
			GP_FAIL(err, GP_INVALID,
				"%s%s is '%.80s', but the run was begun without; leave it out if you gave it, or "
				"resume with the version that wrote the checkpoint",
				dashes, p->key, p->value);
		if (strcmp(before, p->value) != 0)
			return fail_differing(dashes, p->key, p->value, before, err);
	}
	return GP_OK;
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

/* Texts are shown in messages, so control characters are refused. */
static bool is_printable(const char *text, size_t most)
{
	return strlen(text) <= most && gp_text_is_printable(text);
}

bool gp_manifest_takes(const char *value)
{
	json_t *text = json_string(value);
	const bool takes = text && is_printable(value, VALUE_MAX);
	json_decref(text);
	return takes;
}

static enum gp_status read_pairs(json_t *root, const char *name, struct gp_pairs *out, struct gp_err *err)
{
	json_t *object = json_object_get(root, name), *value;
	const char *key;
	if (!json_is_object(object))
		GP_FAIL(err, GP_INVALID, "no object \"%s\"", name);
	if (json_object_size(object) > GP_MANIFEST_PAIRS)
		GP_FAIL(err, GP_INVALID, "\"%s\" has more than %d entries", name, GP_MANIFEST_PAIRS);
	json_object_foreach(object, key, value)
	{
		if (!json_is_string(value) || !*key || !is_printable(key, KEY_MAX) ||
		    !is_printable(json_string_value(value), VALUE_MAX))
			GP_FAIL(err, GP_INVALID, "\"%s\" has an entry that is no text", name);
		gp_pairs_add(out, key, json_string_value(value));
	}
	return GP_OK;
}

static enum gp_status read_role(json_t *root, enum gp_manifest_role *out, struct gp_err *err)
{
	const char *role = json_string_value(json_object_get(root, "role"));
	for (int i = 0; role && i < 2; i++) {
		if (strcmp(role, roles[i]) == 0) {
			*out = (enum gp_manifest_role)i;
			return GP_OK;
		}
	}
	GP_FAIL(err, GP_INVALID, "\"role\" is neither client nor server");
}

static enum gp_status read_number(json_t *root, const char *name, uint64_t most, uint64_t *out, struct gp_err *err)
{
	const json_t *n = json_object_get(root, name);
	if (!json_is_integer(n) || json_integer_value(n) < 0 || (uint64_t)json_integer_value(n) > most)
		GP_FAIL(err, GP_INVALID, "\"%s\" is not a number from 0 to %" PRIu64, name, most);
	*out = (uint64_t)json_integer_value(n);
	return GP_OK;
}

static enum gp_status read_hash(json_t *root, uint64_t *out, struct gp_err *err)
{
	uint8_t bytes[HASH_CHARS / 2];
	const char *text = json_string_value(json_object_get(root, "state_xxh3"));
	if (!text || !read_hex(text, sizeof bytes, bytes))
		GP_FAIL(err, GP_INVALID, "\"state_xxh3\" is not %d hex digits", HASH_CHARS);
	*out = 0;
	for (size_t i = 0; i < sizeof bytes; i++)
		*out = *out << 8 | bytes[i];
	return GP_OK;
}

static enum gp_status read_all(json_t *root, struct gp_manifest *m, struct gp_err *err)
{
	uint64_t format;
	GP_TRY(read_number(root, "format", INT64_MAX, &format, err));
	if (format != FORMAT)
		GP_FAIL(err, GP_UNSUPPORTED, "its format is %" PRIu64 "; this version reads format %d", format, FORMAT);
	GP_TRY(read_role(root, &m->role, err));
	const char *run = json_string_value(json_object_get(root, "run"));
	if (!run || !gp_run_id_parse(run, m->run_id))
		GP_FAIL(err, GP_INVALID, "\"run\" is not %d hex digits", GP_RUN_ID_HEX - 1);
	GP_TRY(read_number(root, "step", GP_MANIFEST_STEP_MAX, &m->step, err));
	GP_TRY(read_number(root, "state_bytes", INT64_MAX, &m->state_bytes, err));
	GP_TRY(read_hash(root, &m->state_hash, err));
	GP_TRY(read_pairs(root, "spec", &m->spec, err));
	return read_pairs(root, "progress", &m->progress, err);
}

enum gp_status gp_manifest_parse(const void *bytes, size_t len, struct gp_manifest *out, struct gp_err *err)
{
	json_error_t json;
	struct gp_manifest m = {0};
	if (len > GP_MANIFEST_BYTES)
		GP_FAIL(err, GP_INVALID, "%zu bytes are too many for a manifest", len);
	m.json = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, &json);
	if (!m.json)
		GP_FAIL(err, GP_INVALID, "not valid JSON: %.100s at byte %d", json.text, json.position);
	if (read_all(m.json, &m, err) != GP_OK) {
		json_decref(m.json);
		return err->code;
	}
	*out = m;
	return GP_OK;
}

void gp_manifest_deinit(struct gp_manifest *m)
{
	json_decref(m->json);
	*m = (struct gp_manifest){0};
}

/* --- writing ---------------------------------------------------------------------------------------------------- */

static json_t *pairs_json(const struct gp_pairs *p)
{
	json_t *o = json_object();
	for (int i = 0; i < p->count; i++) {
		if (json_object_set_new(o, p->pair[i].key, json_string(p->pair[i].value)) != 0) {
			json_decref(o);
			return NULL;
		}
	}
	return o;
}

enum gp_status gp_manifest_text(const struct gp_manifest *m, char **out, struct gp_err *err)
{
	char run[GP_RUN_ID_HEX], hash[HASH_CHARS + 1];
	if (m->step > GP_MANIFEST_STEP_MAX)
		GP_FAIL(err, GP_INVALID, "step %" PRIu64 " is too late for a checkpoint", m->step);
	gp_run_id_text(m->run_id, run);
	snprintf(hash, sizeof hash, "%016" PRIx64, m->state_hash);
	json_t *o = json_pack("{s:i, s:s, s:s, s:I, s:I, s:s, s:o, s:o}", "format", FORMAT, "role", roles[m->role],
			      "run", run, "step", (json_int_t)m->step, "state_bytes", (json_int_t)m->state_bytes,
			      "state_xxh3", hash, "spec", pairs_json(&m->spec), "progress", pairs_json(&m->progress));
	char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
	json_decref(o);
	size_t len = text ? strlen(text) : 0;
	char *line = text ? realloc(text, len + 2) : NULL;
	if (!line) {
		free(text);
		GP_FAIL(err, GP_INVALID, "a manifest that is no valid UTF-8, or out of memory for it");
	}
	memcpy(line + len, "\n", 2);
	*out = line;
	return GP_OK;
}
