/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs on a GPU: the table of stages that work there, and what each of them
 * is written with. A stage (cuda_*.c) is C over rt.h and the launchers of
 * its kernels (k_codec_*.h). Its row gives only what differs from the host's
 * stage of the same id: open, close, bytes, regions and the functions that see
 * tensors. Keys, bounds, shapes and names are the host's, so both kinds of end
 * agree on every spec. A stage that is not in the table runs on the host
 * (codec_device.h).
 *
 * Rules for stages: struct gp_codec_site in codec_device.h. Regions lie on the
 * host and are copied up and down, so that saving, hashing and undoing are the
 * host's, or on the device (in_place) where they are as large as tensors. Which
 * stages give the same bytes as the host's: CODECS.md, "On a GPU".
 *
 * Threads: as struct gp_codec. Test: tests/unit/test_cuda_codec.c
 */
#ifndef GP_CODEC_CUDA_H
#define GP_CODEC_CUDA_H

#include "common/codec/codec_device.h"
#include "kernels/cuda/runtime/rt.h"

/* Rooms of a site that any stage may use from being called to returning, or, for what it queues, until it is done. */
enum { GP_CUDA_NOTE = 1024 };

struct gp_codec_site {
	int device;
	struct gp_rt_stream *stream;
	uint8_t *payload;       /* device; largest piece of any stage and some more: gp_cuda_codec_body */
	uint64_t payload_bytes; /* of it that a piece may take */
	void *note,
		*told; /* device and pinned, GP_CUDA_NOTE bytes each: a kernel's answers, and where the host reads them */
	struct gp_rt_event *asked; /* when the note was told last by gp_cuda_codec_ask */
	bool failed;
	struct gp_err why; /* of the first failure */
};

/* GPU `device`, whose plans and codecs share nothing else. Plain data. */
void gp_cuda_codec_device(int device, struct gp_codec_device *out);

/* --- for stages ------------------------------------------------------------------------------------------------- */

/* Waits. False: the device failed, now or before; gp_codec_tree tells the caller. */
bool gp_cuda_codec_wait(struct gp_codec_site *p);
/* Memory for one stage alone, which it frees in `close`; freeing NULL is fine. GP_NOMEM. */
enum gp_status gp_cuda_codec_alloc(struct gp_codec_site *p, uint64_t bytes, void **out, struct gp_err *err);
enum gp_status gp_cuda_codec_alloc_pinned(struct gp_codec_site *p, uint64_t bytes, void **out, struct gp_err *err);
void gp_cuda_codec_free(struct gp_codec_site *p, void *room);
void gp_cuda_codec_free_pinned(struct gp_codec_site *p, void *room);
/* Where in the payload room a piece begins whose byte `head` (< 256) is aligned to 256. Room for payload_bytes from it,
 * and for 128 bytes behind that a kernel may read or write. */
uint8_t *gp_cuda_codec_body(struct gp_codec_site *p, size_t head);
/* Queued: a piece to gp_cuda_codec_body(p, head), which is returned. At most payload_bytes. */
uint8_t *gp_cuda_codec_up(struct gp_codec_site *p, struct gp_span in, size_t head);
/* Queued: the first `bytes` of the note to `told`. */
void gp_cuda_codec_tell(struct gp_codec_site *p, size_t bytes);
/* The same, and waiting for that alone, as gp_cuda_codec_wait: what was queued between goes on meanwhile. */
void gp_cuda_codec_ask(struct gp_codec_site *p, size_t bytes);
bool gp_cuda_codec_answer(struct gp_codec_site *p);

#endif
