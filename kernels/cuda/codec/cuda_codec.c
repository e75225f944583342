/* SPDX-License-Identifier: Apache-2.0
 *
 * Sites of codecs on a GPU, and the table of stages. See cuda_codec.h.
 * Test: tests/unit/test_cuda_codec.c
 */
#include "kernels/cuda/codec/cuda_codec.h"

#include <pthread.h>

#include "kernels/cuda/codec/cuda_codec_table.h"

enum { ALIGN = 256, SLACK = ALIGN + 128 };

/* --- table ------------------------------------------------------------------------------------------------------ */

#define ROW_0(id, name)
#define ROW_1(id, name)    {id, &gp_cuda_codec_##name},
#define ROW(id, name, gpu) ROW_##gpu(id, name)
static const struct {
	uint16_t id;
	const struct gp_codec_ops *ops;
} rows[] = {GP_CODECS(ROW)};
enum { ROWS = sizeof rows / sizeof rows[0] };

static struct gp_codec_ops table[ROWS];
static pthread_once_t table_made = PTHREAD_ONCE_INIT;

/* The host's stage, working elsewhere. */
static struct gp_codec_ops merged(uint16_t id, const struct gp_codec_ops *row)
{
	struct gp_codec_ops ops = *gp_codec_ops_by_id(id);
	ops.open = row->open;
	ops.close = row->close;
	ops.bytes = row->bytes;
	ops.regions = row->regions;
	ops.loaded = row->loaded;
	ops.back_up = row->back_up;
	ops.undo = row->undo;
	ops.encode = row->encode;
	ops.decode = row->decode;
	ops.codes_written = row->codes_written;
	ops.encode_from = row->encode_from;
	ops.decode_to = row->decode_to;
	ops.split = row->split;
	ops.join = row->join;
	ops.piece = row->piece;
	ops.join_piece = row->join_piece;
	ops.learn = row->learn;
	ops.passed = row->passed;
	return ops;
}

static void make_table(void)
{
	for (int i = 0; i < ROWS; i++)
		table[i] = merged(rows[i].id, rows[i].ops);
}

static const struct gp_codec_ops *codec(uint16_t id)
{
	pthread_once(&table_made, make_table);
	for (int i = 0; i < ROWS; i++)
		if (table[i].id == id)
			return &table[i];
	return NULL;
}

/* --- sites ------------------------------------------------------------------------------------------------------ */

static uint64_t site_bytes(uint64_t payload)
{
	uint64_t sum = sizeof(struct gp_codec_site) + 2 * GP_CUDA_NOTE + SLACK + ALIGN;
	return gp_add_ok(sum, payload, &sum) ? sum : UINT64_MAX;
}

static void site_close(struct gp_codec_site *p)
{
	if (!p)
		return;
	gp_rt_stream_free(p->stream);
	gp_rt_event_free(p->asked);
	gp_rt_free(p->device, p->payload);
	gp_rt_free(p->device, p->note);
	gp_rt_free_pinned(p->device, p->told);
	gp_free(p);
}

static enum gp_status fill_site(struct gp_codec_site *p, struct gp_err *err)
{
	void *payload;
	GP_TRY(gp_rt_stream_new(p->device, true, &p->stream, err));
	GP_TRY(gp_rt_event_new(p->device, &p->asked, err));
	GP_TRY(gp_rt_alloc(p->device, p->payload_bytes + SLACK, &payload, err));
	p->payload = payload;
	GP_TRY(gp_rt_alloc(p->device, GP_CUDA_NOTE, &p->note, err));
	return gp_rt_alloc_pinned(p->device, GP_CUDA_NOTE, &p->told, err);
}

static enum gp_status site_open(const struct gp_codec_device *m, uint64_t payload, struct gp_codec_site **out,
				struct gp_err *err)
{
	struct gp_codec_site *p = gp_calloc(1, sizeof *p);
	if (!p)
		GP_FAIL(err, GP_NOMEM, "out of memory for a codec on GPU %d", m->device);
	p->device = m->device;
	p->payload_bytes = payload;
	enum gp_status status = fill_site(p, err);
	if (status != GP_OK) {
		site_close(p);
		return status;
	}
	*out = p;
	return GP_OK;
}

static enum gp_status alloc_host(const struct gp_codec_device *m, uint64_t bytes, void **out, struct gp_err *err)
{
	return gp_rt_alloc_pinned(m->device, bytes, out, err);
}

static void free_host(const struct gp_codec_device *m, void *p)
{
	gp_rt_free_pinned(m->device, p);
}

static void copy_up(struct gp_codec_site *p, void *to, const void *from, size_t bytes)
{
	gp_rt_copy_up(p->stream, to, from, bytes);
}

static void copy_down(struct gp_codec_site *p, void *to, const void *from, size_t bytes)
{
	gp_rt_copy_down(p->stream, to, from, bytes);
}

static void copy_across(struct gp_codec_site *p, void *to, const void *from, size_t bytes)
{
	gp_rt_copy(p->stream, to, from, bytes);
}

static enum gp_status finish(struct gp_codec_site *p, struct gp_err *err)
{
	if (gp_cuda_codec_wait(p))
		return GP_OK;
	if (err)
		*err = p->why;
	return GP_DEVICE;
}

void gp_cuda_codec_device(int device, struct gp_codec_device *out)
{
	static const struct gp_codec_device_ops ops = {
		.codec = codec,
		.site_bytes = site_bytes,
		.site_open = site_open,
		.site_close = site_close,
		.alloc = gp_cuda_codec_alloc,
		.free = gp_cuda_codec_free,
		.alloc_host = alloc_host,
		.free_host = free_host,
		.up = copy_up,
		.down = copy_down,
		.across = copy_across,
		.finish = finish,
	};
	*out = (struct gp_codec_device){.ops = &ops, .device = device};
}

/* --- for stages ------------------------------------------------------------------------------------------------- */

/* Whether all has gone well so far, with what a wait has just said. */
static bool fine_after(struct gp_codec_site *p, enum gp_status status, const struct gp_err *err)
{
	if (status != GP_OK && !p->failed)
		p->why = *err;
	p->failed |= status != GP_OK;
	return !p->failed;
}

bool gp_cuda_codec_wait(struct gp_codec_site *p)
{
	struct gp_err err;
	return fine_after(p, gp_rt_stream_wait(p->stream, &err), &err);
}

enum gp_status gp_cuda_codec_alloc(struct gp_codec_site *p, uint64_t bytes, void **out, struct gp_err *err)
{
	return gp_rt_alloc(p->device, bytes, out, err);
}

enum gp_status gp_cuda_codec_alloc_pinned(struct gp_codec_site *p, uint64_t bytes, void **out, struct gp_err *err)
{
	return gp_rt_alloc_pinned(p->device, bytes, out, err);
}

/* A pass that failed may have left work behind. */
void gp_cuda_codec_free(struct gp_codec_site *p, void *room)
{
	(void)gp_cuda_codec_wait(p);
	gp_rt_free(p->device, room);
}

/* Somebody else may have it at once: nothing queued before a failure may still write to it. */
void gp_cuda_codec_free_pinned(struct gp_codec_site *p, void *room)
{
	if (room)
		(void)gp_cuda_codec_wait(p);
	gp_rt_free_pinned(p->device, room);
}

uint8_t *gp_cuda_codec_body(struct gp_codec_site *p, size_t head)
{
	gp_require(head < ALIGN);
	return p->payload + (head ? ALIGN - head : 0);
}

uint8_t *gp_cuda_codec_up(struct gp_codec_site *p, struct gp_span in, size_t head)
{
	uint8_t *const to = gp_cuda_codec_body(p, head);
	gp_require(in.len <= p->payload_bytes);
	gp_rt_copy_up(p->stream, to, in.data, in.len);
	return to;
}

void gp_cuda_codec_tell(struct gp_codec_site *p, size_t bytes)
{
	gp_require(bytes <= GP_CUDA_NOTE);
	gp_rt_copy_down(p->stream, p->told, p->note, bytes);
}

void gp_cuda_codec_ask(struct gp_codec_site *p, size_t bytes)
{
	gp_cuda_codec_tell(p, bytes);
	gp_rt_event_record(p->asked, p->stream);
}

bool gp_cuda_codec_answer(struct gp_codec_site *p)
{
	struct gp_err err;
	return fine_after(p, gp_rt_event_wait(p->asked, &err), &err);
}
