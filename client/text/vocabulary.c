/* SPDX-License-Identifier: Apache-2.0
 *
 * See vocabulary.h. The table is probed cell after cell (linear probing), at
 * most half full. Test: tests/unit/test_tokenizer.c
 */
#include "client/text/vocabulary.h"

#include <string.h>

#include <xxhash.h>

#include "common/base/mem.h"

#define NOWHERE SIZE_MAX

struct gp_vocabulary_token {
	size_t shown, key; /* where they begin in `text`; NOWHERE: not there */
	uint32_t key_bytes;
};

enum gp_status gp_vocabulary_init(struct gp_vocabulary *v, int32_t count, struct gp_err *err)
{
	*v = (struct gp_vocabulary){.count = count, .cells = 16};
	while (v->cells < 2 * (uint64_t)count)
		v->cells *= 2;
	v->token = gp_calloc((size_t)count, sizeof *v->token);
	v->cell = gp_realloc(NULL, v->cells, sizeof *v->cell);
	if (!v->token || !v->cell) {
		gp_vocabulary_deinit(v);
		GP_FAIL(err, GP_NOMEM, "out of memory for %d tokens", count);
	}
	for (int32_t i = 0; i < count; i++)
		v->token[i].shown = v->token[i].key = NOWHERE;
	for (uint64_t i = 0; i < v->cells; i++)
		v->cell[i] = -1;
	return GP_OK;
}

void gp_vocabulary_deinit(struct gp_vocabulary *v)
{
	gp_free(v->token);
	gp_free(v->cell);
	gp_free(v->text);
	*v = (struct gp_vocabulary){0};
}

/* The cell that holds the key, or the free one where it belongs. */
static int32_t *cell_of(const struct gp_vocabulary *v, struct gp_text key)
{
	uint64_t at = XXH3_64bits(key.at, key.len) & (v->cells - 1);
	for (;; at = (at + 1) & (v->cells - 1)) {
		const int32_t id = v->cell[at];
		if (id < 0)
			return &v->cell[at];
		const struct gp_vocabulary_token *t = &v->token[id];
		if (t->key_bytes == key.len && memcmp(v->text + t->key, key.at, key.len) == 0)
			return &v->cell[at];
	}
}

static enum gp_status reserve(struct gp_vocabulary *v, size_t more, struct gp_err *err)
{
	if (v->text_room - v->text_bytes >= more)
		return GP_OK;
	const size_t room = 2 * v->text_room + more;
	char *text = gp_realloc(v->text, room, 1);
	if (!text)
		GP_FAIL(err, GP_NOMEM, "out of memory for %zu bytes of tokens", room);
	v->text = text;
	v->text_room = room;
	return GP_OK;
}

static size_t append(struct gp_vocabulary *v, struct gp_text text)
{
	const size_t at = v->text_bytes;
	memcpy(v->text + at, text.at, text.len);
	v->text[at + text.len] = '\0';
	v->text_bytes += text.len + 1;
	return at;
}

enum gp_status gp_vocabulary_add(struct gp_vocabulary *v, int64_t id, struct gp_text shown, struct gp_text key,
				 struct gp_err *err)
{
	char name[GP_SHOWN], other[GP_SHOWN];
	if (id < 0 || id >= v->count)
		GP_FAIL(err, GP_INVALID, "'%s' has the id %lld, but there are %d tokens, whose ids are 0 to %d%s",
			gp_text_shown(shown, name), (long long)id, v->count, v->count - 1,
			id >= v->count && id < 2 * (int64_t)v->count ? ": is a token missing?" : "");
	struct gp_vocabulary_token *t = &v->token[id];
	if (t->shown != NOWHERE)
		GP_FAIL(err, GP_INVALID, "'%s' has the id %lld, and so has '%s'", gp_text_shown(shown, name),
			(long long)id, gp_text_shown(gp_text_of(v->text + t->shown), other));
	int32_t *cell = key.at ? cell_of(v, key) : NULL;
	if (cell && *cell >= 0)
		GP_FAIL(err, GP_INVALID, "'%s' occurs twice, with the ids %d and %lld", gp_text_shown(shown, name),
			*cell, (long long)id);
	GP_TRY(reserve(v, shown.len + key.len + 2, err));
	t->shown = append(v, shown);
	if (!cell)
		return GP_OK;
	t->key = append(v, key);
	t->key_bytes = (uint32_t)key.len;
	*cell = (int32_t)id;
	return GP_OK;
}

bool gp_vocabulary_has(const struct gp_vocabulary *v, int32_t id)
{
	return id >= 0 && id < v->count && v->token[id].shown != NOWHERE;
}

const char *gp_vocabulary_shown(const struct gp_vocabulary *v, int32_t id)
{
	gp_require(gp_vocabulary_has(v, id));
	return v->text + v->token[id].shown;
}

int32_t gp_vocabulary_find(const struct gp_vocabulary *v, struct gp_text key)
{
	return *cell_of(v, key);
}

struct gp_text gp_vocabulary_key(const struct gp_vocabulary *v, int32_t id)
{
	gp_require(gp_vocabulary_has(v, id));
	const struct gp_vocabulary_token *t = &v->token[id];
	return t->key == NOWHERE ? (struct gp_text){NULL, 0} : (struct gp_text){v->text + t->key, t->key_bytes};
}

uint64_t gp_vocabulary_hash(const struct gp_vocabulary *v)
{
	uint64_t hash = (uint64_t)v->count;
	for (int32_t i = 0; i < v->count; i++) {
		const char *shown = gp_vocabulary_shown(v, i);
		hash = XXH3_64bits_withSeed(shown, strlen(shown) + 1, hash);
	}
	return hash;
}
