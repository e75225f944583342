/* SPDX-License-Identifier: Apache-2.0
 *
 * What an instance remembers, as bytes: saved for a checkpoint, loaded from
 * one, hashed to see whether both ends are in step. Stages describe their
 * state as flat regions; nothing here knows what they mean.
 *
 * Saved: magic "gpcs", version 1, XXH3-64 of the canonical spec, u64 length of
 * the regions, the regions in the order of stages, XXH3-64 of all before it.
 * Test: tests/unit/test_codec_state.c
 */
#define XXH_STATIC_LINKING_ONLY /* a hash state on the stack: hashing between two steps allocates nothing */
#include <xxhash.h>

#include "common/codec/codec_chain.h"

enum { PREFIX = 24, SUFFIX = 8, VERSION = 1, PIECE = 16384 };
static const uint8_t magic[4] = {'g', 'p', 'c', 's'};

static void put_u64(uint8_t *out, uint64_t v)
{
	gp_put_u32(out, (uint32_t)v);
	gp_put_u32(out + 4, (uint32_t)(v >> 32));
}

static uint64_t get_u64(const uint8_t *in)
{
	return gp_get_u32(in) | (uint64_t)gp_get_u32(in + 4) << 32;
}

typedef enum gp_status visit_fn(const struct gp_codec_tree *t, const struct gp_codec_region *r, void *arg,
				struct gp_err *err);

/* Every region, tree after tree, until `visit` fails. */
static enum gp_status each_region(const struct gp_codec *c, visit_fn *visit, void *arg, struct gp_err *err)
{
	const struct gp_codec_tree *trees[2] = {&c->tree, &c->other};
	struct gp_codec_region region[GP_CODEC_MAX_REGIONS];
	for (int t = 0; t < 2; t++)
		for (int i = 0; i < trees[t]->nodes; i++) {
			const struct gp_codec_node *node = &trees[t]->node[i];
			const int count = node->ops->regions ? node->ops->regions(node->state, region) : 0;
			for (int r = 0; r < count; r++)
				GP_TRY(visit(trees[t], &region[r], arg, err));
		}
	return GP_OK;
}

static enum gp_status add_bytes(const struct gp_codec_tree *t, const struct gp_codec_region *r, void *arg,
				struct gp_err *err)
{
	(void)t;
	(void)err;
	*(size_t *)arg += r->bytes;
	return GP_OK;
}

static enum gp_status copy_out(const struct gp_codec_tree *t, const struct gp_codec_region *r, void *arg,
			       struct gp_err *err)
{
	uint8_t **at = arg;
	GP_TRY(gp_codec_region_get(t->inside, t->site, r, 0, *at, r->bytes, err));
	*at += r->bytes;
	return GP_OK;
}

static enum gp_status copy_in(const struct gp_codec_tree *t, const struct gp_codec_region *r, void *arg,
			      struct gp_err *err)
{
	const uint8_t **at = arg;
	GP_TRY(gp_codec_region_put(t->inside, t->site, r, *at, err));
	*at += r->bytes;
	return GP_OK;
}

static size_t region_bytes(const struct gp_codec *c)
{
	size_t sum = 0;
	each_region(c, add_bytes, &sum, NULL);
	return sum;
}

bool gp_codec_remembers(const struct gp_codec *c)
{
	return region_bytes(c) > 0;
}

size_t gp_codec_state_bytes(const struct gp_codec *c)
{
	return PREFIX + region_bytes(c) + SUFFIX;
}

static void write_prefix(const struct gp_codec *c, size_t regions, uint8_t out[PREFIX])
{
	memcpy(out, magic, sizeof magic);
	gp_put_u32(out + 4, VERSION);
	put_u64(out + 8, XXH3_64bits(c->spec.text, strlen(c->spec.text)));
	put_u64(out + 16, regions);
}

enum gp_status gp_codec_state_save(const struct gp_codec *c, uint8_t *out, struct gp_err *err)
{
	uint8_t *at = out + PREFIX;
	write_prefix(c, region_bytes(c), out);
	GP_TRY(each_region(c, copy_out, &at, err));
	put_u64(at, XXH3_64bits(out, (size_t)(at - out)));
	return GP_OK;
}

static bool all_loaded(struct gp_codec *c)
{
	struct gp_codec_tree *trees[2] = {&c->tree, &c->other};
	bool good = true;
	for (int t = 0; t < 2; t++)
		for (int i = 0; i < trees[t]->nodes; i++) {
			const struct gp_codec_node *node = &trees[t]->node[i];
			good &= !node->ops->loaded || node->ops->loaded(node->state);
		}
	return good;
}

static enum gp_status check_saved(const struct gp_codec *c, struct gp_span in, struct gp_err *err)
{
	uint8_t expected[PREFIX];
	if (in.len != gp_codec_state_bytes(c))
		GP_FAIL(err, GP_INVALID, "saved codec state has %zu bytes; %s of this shape has %zu", in.len,
			c->spec.text, gp_codec_state_bytes(c));
	write_prefix(c, in.len - PREFIX - SUFFIX, expected);
	if (memcmp(in.data, expected, PREFIX) != 0)
		GP_FAIL(err, GP_INVALID, "saved codec state is not one of %s", c->spec.text);
	if (get_u64(in.data + in.len - SUFFIX) != XXH3_64bits(in.data, in.len - SUFFIX))
		GP_FAIL(err, GP_INVALID, "saved codec state is damaged: its checksum differs");
	return GP_OK;
}

/* The state becomes `in`, or, where a stage cannot work with that, `before`. */
static enum gp_status load_or_restore(struct gp_codec *c, const uint8_t *in, const uint8_t *before, struct gp_err *err)
{
	GP_TRY(each_region(c, copy_in, &in, err));
	if (all_loaded(c))
		return GP_OK;
	GP_TRY(each_region(c, copy_in, &before, err));
	gp_require(all_loaded(c));
	GP_FAIL(err, GP_INVALID, "saved codec state of %s holds values that it cannot work with", c->spec.text);
}

/* Keeps a copy of the state until the new one has been found to be sound. */
enum gp_status gp_codec_state_load(struct gp_codec *c, struct gp_span in, struct gp_err *err)
{
	void *p;
	GP_TRY(check_saved(c, in, err));
	GP_TRY(gp_alloc_array(&p, 1, in.len, err));
	enum gp_status status = gp_codec_state_save(c, p, err);
	if (status == GP_OK)
		status = load_or_restore(c, in.data + PREFIX, (const uint8_t *)p + PREFIX, err);
	gp_free(p);
	GP_TRY(status);
	gp_codec_tree_forget(&c->tree);
	gp_codec_tree_forget(&c->other);
	return GP_OK;
}

struct digest {
	XXH3_state_t *xxh;
	bool shared_only;
	size_t bytes;
};

/* Hashes a region piece by piece, through a buffer on the stack where it lies on a device. */
static enum gp_status digest_region(const struct gp_codec_tree *t, const struct gp_codec_region *r, void *arg,
				    struct gp_err *err)
{
	struct digest *d = arg;
	uint8_t piece[PIECE];
	if (d->shared_only && !r->shared)
		return GP_OK;
	d->bytes += r->bytes;
	if (!r->on_device) {
		XXH3_64bits_update(d->xxh, r->data, r->bytes);
		return GP_OK;
	}
	for (size_t at = 0; at < r->bytes; at += PIECE) {
		const size_t bytes = r->bytes - at < PIECE ? r->bytes - at : PIECE;
		GP_TRY(gp_codec_region_get(t->inside, t->site, r, at, piece, bytes, err));
		XXH3_64bits_update(d->xxh, piece, bytes);
	}
	return GP_OK;
}

static uint64_t digest(const struct gp_codec *c, bool shared_only)
{
	XXH3_state_t xxh;
	struct digest d = {.xxh = &xxh, .shared_only = shared_only};
	XXH3_INITSTATE(&xxh);
	XXH3_64bits_reset(&xxh);
	const enum gp_status status = each_region(c, digest_region, &d, NULL);
	return d.bytes && status == GP_OK ? XXH3_64bits_digest(&xxh) : 0;
}

uint64_t gp_codec_state_hash(const struct gp_codec *c)
{
	return digest(c, false);
}

uint64_t gp_codec_state_shared_hash(const struct gp_codec *c)
{
	return digest(c, true);
}
