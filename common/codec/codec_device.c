/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for payloads, on the host or close to a device, and what stages
 * remember, wherever that lies. See codec_device.h.
 * Test: tests/unit/test_cuda_codec.c
 */
#include "common/codec/codec_device.h"

enum gp_status gp_codec_alloc_payload(const struct gp_codec_device *m, uint64_t bytes, uint8_t **out,
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

void gp_codec_free_payload(const struct gp_codec_device *m, uint8_t *p)
{
	if (m)
		m->ops->free_host(m, p);
	else
		gp_free_aligned(p);
}

enum gp_status gp_codec_region_get(const struct gp_codec_device *m, struct gp_codec_site *p,
				   const struct gp_codec_region *r, size_t from, void *out, size_t bytes,
				   struct gp_err *err)
{
	const uint8_t *const at = (const uint8_t *)r->data + from;
	if (!r->on_device) {
		memcpy(out, at, bytes);
		return GP_OK;
	}
	m->ops->down(p, out, at, bytes);
	return m->ops->finish(p, err);
}

enum gp_status gp_codec_region_put(const struct gp_codec_device *m, struct gp_codec_site *p,
				   const struct gp_codec_region *r, const void *in, struct gp_err *err)
{
	if (!r->on_device) {
		memcpy(r->data, in, r->bytes);
		return GP_OK;
	}
	m->ops->up(p, r->data, in, r->bytes);
	return m->ops->finish(p, err);
}

void gp_codec_region_back_up(const struct gp_codec_device *m, struct gp_codec_site *p, const struct gp_codec_region *r,
			     size_t from, size_t bytes, bool back)
{
	uint8_t *const data = (uint8_t *)r->data + from, *const backup = (uint8_t *)r->backup + from;
	if (r->on_device)
		m->ops->across(p, back ? data : backup, back ? backup : data, bytes);
	else
		memcpy(back ? data : backup, back ? backup : data, bytes);
}
