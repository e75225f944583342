/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for payloads, on the host or close to a device. See codec_memory.h.
 * Test: tests/unit/test_cuda_codec.c
 */
#include "common/codec_memory.h"

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
