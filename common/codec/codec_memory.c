/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for payloads, on the host or close to a device, and what stages
 * remember, wherever that lies. See codec_memory.h.
 * Test: tests/unit/test_cuda_codec.c
 */
#include "common/codec/codec_memory.h"

enum gp_status gp_codec_alloc_payload(const struct gp_codec_memory *m, uint64_t bytes, uint8_t **out,
				      struct gp_err *err)
{
	void *p = NULL;
	if (m) {
		GP_TRY(m->ops->alloc_host(m, bytes, &p, err));
	} else {
		p = gp_alloc_aligned(bytes);
		if (!p)
			GP_FAIL(err, GP_NOMEM, "out of memory for a payload of %llu bytes", (unsigned long long)bytes);
	}
	*out = p;
	return GP_OK;
}

void gp_codec_free_payload(const struct gp_codec_memory *m, uint8_t *p)
{
	if (m)
		m->ops->free_host(m, p);
	else
		gp_free_aligned(p);
}

enum gp_status gp_codec_region_get(const struct gp_codec_memory *m, struct gp_codec_place *p,
				   const struct gp_codec_region *r, size_t from, void *out, size_t bytes,
				   struct gp_err *err)
{
	const uint8_t *const at = (const uint8_t *)r->data + from;
	if (!r->in_place) {
		memcpy(out, at, bytes);
		return GP_OK;
	}
	m->ops->down(p, out, at, bytes);
	return m->ops->finish(p, err);
}

enum gp_status gp_codec_region_put(const struct gp_codec_memory *m, struct gp_codec_place *p,
				   const struct gp_codec_region *r, const void *in, struct gp_err *err)
{
	if (!r->in_place) {
		memcpy(r->data, in, r->bytes);
		return GP_OK;
	}
	m->ops->up(p, r->data, in, r->bytes);
	return m->ops->finish(p, err);
}

void gp_codec_region_keep(const struct gp_codec_memory *m, struct gp_codec_place *p, const struct gp_codec_region *r,
			  size_t from, size_t bytes, bool back)
{
	uint8_t *const data = (uint8_t *)r->data + from, *const kept = (uint8_t *)r->kept + from;
	if (r->in_place)
		m->ops->across(p, back ? data : kept, back ? kept : data, bytes);
	else
		memcpy(back ? data : kept, back ? kept : data, bytes);
}
