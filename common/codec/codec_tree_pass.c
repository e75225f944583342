/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding and decoding with the tree of a chain. See codec_tree.h. Layout of the
 * bytes: CODECS.md, "Payload".
 * Test: tests/unit/test_codec_tree.c; fuzz: tests/fuzz/fuzz_codec_decode.c
 */
#include "common/codec/codec_tree.h"

/* --- heads ------------------------------------------------------------------------------------------------------ */

void gp_codec_head_write(uint8_t *out, int form)
{
	gp_put_u32(out, (uint32_t)form);
}

enum gp_status gp_codec_head_read(struct gp_span in, int *form, struct gp_err *err)
{
	if (in.len < GP_CODEC_HEAD)
		GP_FAIL(err, GP_PROTO, "payload of %zu bytes is shorter than its head", in.len);
	if (in.data[1] || in.data[2] || in.data[3] || in.data[0] > GP_CODEC_RAW)
		GP_FAIL(err, GP_PROTO, "payload head %02x %02x %02x %02x is not known", in.data[0], in.data[1],
			in.data[2], in.data[3]);
	*form = in.data[0];
	return GP_OK;
}

/* A tensor travels raw: nothing below this node sees it. */
static void pass_by(struct gp_codec_node *node, const struct gp_codec_pass *pass)
{
	if (node->ops->passed)
		node->ops->passed(node->state, pass);
	for (int i = 0; i < node->parts; i++)
		pass_by(node->part[i], pass);
}

/* --- encode ----------------------------------------------------------------------------------------------------- */

static size_t encode_node(struct gp_codec_tree *t, struct gp_codec_node *node, const struct gp_codec_pass *pass,
			  const float *x, uint8_t *out, float *seen);

/* Called before the host looks at what a stage wrote. False: the device failed, and what should have been written is
 * not there. */
static bool arrived(const struct gp_codec_tree *t)
{
	struct gp_err err;
	return !t->inside || t->inside->ops->finish(t->site, &err) == GP_OK;
}

/* The node's own bytes as the other end will decode them. Every stage promises that they decode, but whether they do
 * depends on numbers from outside, so a stage that is wrong ends its session and not the process. */
static void see_quantized(struct gp_codec_tree *t, struct gp_codec_node *node, const struct gp_codec_pass *pass,
			  struct gp_span body, float *seen)
{
	struct gp_err err;
	if (!arrived(t))
		return;
	t->broken |= node->ops->decode(node->state, pass, body, seen, &err) != GP_OK;
}

static void see_joined(struct gp_codec_tree *t, struct gp_codec_node *node, const struct gp_codec_pass *pass,
		       struct gp_span side, float *seen)
{
	struct gp_err err;
	if (!arrived(t))
		return;
	t->broken |= node->ops->join(node->state, pass, side, (const float *const *)node->tensor, seen, &err) != GP_OK;
}

/* Not in front of a wrapper, which backs up what it remembers as it goes, nor of a lossless stage, which has no raw form. */
static bool stops(const struct gp_codec_node *node, const struct gp_codec_pass *pass)
{
	return node->ops->kind != GP_CODEC_WRAPPER && !node->ops->info.lossless && gp_codec_stopped(pass);
}

static void note_codes(struct gp_codec_tree *t, const struct gp_codec_node *node, const uint8_t *out, size_t len)
{
	struct gp_codec_codes codes[GP_CODEC_MAX_CODES] = {0};
	int count = 1;
	if (!node->ops->codes)
		return;
	codes[0] = node->ops->codes(node->value, node->n, len);
	if (codes[0].width < 0)
		count = node->ops->codes_written(node->state, codes);
	for (int i = 0; i < count && t->codes_count < GP_CODEC_MAX_CODES; i++) {
		codes[i].at += (uint64_t)(out - t->begin);
		if (codes[i].width > 0)
			t->codes[t->codes_count++] = codes[i];
	}
}

static bool encode_quantizer(struct gp_codec_tree *t, struct gp_codec_node *node, const struct gp_codec_pass *pass,
			     const float *x, uint8_t *out, size_t *len, float *seen)
{
	if (!node->ops->encode(node->state, pass, x, out, len))
		return false;
	note_codes(t, node, out, *len);
	if (seen)
		see_quantized(t, node, pass, (struct gp_span){out, *len}, seen);
	return true;
}

/* Whether the transform and the quantizer behind it can work piece by piece. */
static bool fuses(const struct gp_codec_node *node)
{
	return node->ops->piece && node->parts == 1 && node->part[0]->ops->encode_from;
}

static enum gp_status decode_fused(struct gp_codec_node *node, const struct gp_codec_pass *pass, struct gp_span body,
				   float *x, struct gp_err *err)
{
	struct gp_codec_sink sink = {.ops = node->ops, .state = node->state, .x = x};
	return node->part[0]->ops->decode_to(node->part[0]->state, pass, body, &sink, err);
}

/* What encode_transform writes, without the tensor between the two. False: it has to go through that. */
static bool encode_fused(struct gp_codec_tree *t, struct gp_codec_node *node, const struct gp_codec_pass *pass,
			 const float *x, uint8_t *out, size_t *len, float *seen)
{
	const struct gp_codec_source source = {.ops = node->ops, .state = node->state, .x = x};
	struct gp_codec_node *part = node->part[0];
	uint8_t *body = out + GP_CODEC_LENGTH + GP_CODEC_HEAD;
	struct gp_err err;
	size_t body_len;
	if (!part->ops->encode_from(part->state, pass, &source, body, &body_len))
		return false;
	gp_put_u32(out, 0); /* no side bytes */
	gp_codec_head_write(out + GP_CODEC_LENGTH, GP_CODEC_CODED);
	note_codes(t, part, body, body_len);
	if (seen)
		t->broken |= decode_fused(node, pass, (struct gp_span){body, body_len}, seen, &err) != GP_OK;
	*len = GP_CODEC_LENGTH + GP_CODEC_HEAD + body_len;
	return true;
}

/* Side bytes behind their length, each part behind its length; the last one takes the rest and has none. */
static bool encode_transform(struct gp_codec_tree *t, struct gp_codec_node *node, const struct gp_codec_pass *pass,
			     const float *x, uint8_t *out, size_t *len, float *seen)
{
	const bool learns = node->ops->learn != NULL && !pass->eval;
	size_t side_len = 0, at;
	if (fuses(node) && encode_fused(t, node, pass, x, out, len, seen))
		return true;
	if (!node->ops->split(node->state, pass, x, node->tensor, out + GP_CODEC_LENGTH, &side_len))
		return false;
	gp_require(side_len <= node->side_bound);
	gp_put_u32(out, (uint32_t)side_len);
	at = GP_CODEC_LENGTH + side_len;
	for (int i = 0; i < node->parts; i++) {
		const bool last = i + 1 == node->parts;
		uint8_t *begin = out + at + (last ? 0 : GP_CODEC_LENGTH);
		size_t part = encode_node(t, node->part[i], pass, node->tensor[i], begin,
					  learns || seen ? node->tensor[i] : NULL);
		if (!last)
			gp_put_u32(out + at, (uint32_t)part);
		at = (size_t)(begin - out) + part;
	}
	if (learns)
		node->ops->learn(node->state, pass, (const float *const *)node->tensor);
	if (seen)
		see_joined(t, node, pass, (struct gp_span){out + GP_CODEC_LENGTH, side_len}, seen);
	*len = at;
	return true;
}

/* (A device's numbers are little-endian, as a payload's.) */
static void put_tensor(const struct gp_codec_tree *t, uint8_t *out, const float *x, uint64_t n)
{
	if (t->inside)
		t->inside->ops->down(t->site, out, x, n * sizeof *x);
	else
		gp_put_f32s(out, x, n);
}

static void copy_tensor(const struct gp_codec_tree *t, float *to, const float *from, uint64_t n)
{
	if (t->inside)
		t->inside->ops->across(t->site, to, from, n * sizeof *to);
	else
		memcpy(to, from, n * sizeof *to);
}

static size_t send_raw(struct gp_codec_tree *t, struct gp_codec_node *node, const struct gp_codec_pass *pass,
		       const float *x, uint8_t *out, float *seen)
{
	gp_codec_head_write(out, GP_CODEC_RAW);
	put_tensor(t, out + GP_CODEC_HEAD, x, node->n);
	if (seen && seen != x)
		copy_tensor(t, seen, x, node->n);
	pass_by(node, pass);
	t->fell_back = true;
	return GP_CODEC_HEAD + 4 * node->n;
}

/* `seen`, which may be x itself, gets the tensor as the other end will decode it; NULL when nobody needs it. */
static size_t encode_node(struct gp_codec_tree *t, struct gp_codec_node *node, const struct gp_codec_pass *pass,
			  const float *x, uint8_t *out, float *seen)
{
	const size_t head = node->ops->info.lossless ? 0 : GP_CODEC_HEAD;
	size_t body = 0;
	bool coded = stops(node, pass) ? false
		     : node->parts     ? encode_transform(t, node, pass, x, out + head, &body, seen)
				       : encode_quantizer(t, node, pass, x, out + head, &body, seen);
	if (!coded)
		return send_raw(t, node, pass, x, out, seen);
	if (head)
		gp_codec_head_write(out, GP_CODEC_CODED);
	return head + body;
}

enum gp_status gp_codec_tree_encode(struct gp_codec_tree *t, const struct gp_codec_pass *pass, const float *x,
				    uint8_t *out, size_t *len, struct gp_err *err)
{
	const bool staged = t->device != t->inside;
	t->fell_back = t->broken = false;
	t->begin = out;
	t->codes_count = 0;
	if (staged) {
		t->device->ops->down(t->site, t->staging, x, t->node[0].n * sizeof *x);
		GP_TRY(t->device->ops->finish(t->site, err));
	}
	gp_codec_tree_back_up(t, pass);
	*len = encode_node(t, t->node, pass, staged ? t->staging : x, out, NULL);
	if (t->inside)
		GP_TRY(t->inside->ops->finish(t->site, err));
	GP_TRY(gp_codec_check_stop(pass, err)); /* where a stage has stopped, nothing needs to decode */
	if (t->broken)
		GP_FAIL(err, GP_INTERNAL, "%s: the payload of this tensor, whose numbers are extreme, does not decode",
			t->node[t->node[0].ops->kind == GP_CODEC_WRAPPER].ops->info.name);
	return GP_OK;
}

/* --- decode ----------------------------------------------------------------------------------------------------- */

static enum gp_status decode_node(struct gp_codec_tree *t, struct gp_codec_node *node, const struct gp_codec_pass *pass,
				  struct gp_span in, float *x, struct gp_err *err);

static void get_tensor(const struct gp_codec_tree *t, float *x, const uint8_t *in, uint64_t n)
{
	if (t->inside)
		t->inside->ops->up(t->site, x, in, n * sizeof *x);
	else
		gp_get_f32s(x, in, n);
}

/* Cuts a length and as many bytes off `rest`. */
static enum gp_status take(struct gp_span *rest, uint64_t most, struct gp_span *out, struct gp_err *err)
{
	if (rest->len < GP_CODEC_LENGTH)
		GP_FAIL(err, GP_PROTO, "payload ends where a length should be");
	const uint32_t len = gp_get_u32(rest->data);
	if (len > rest->len - GP_CODEC_LENGTH || len > most)
		GP_FAIL(err, GP_PROTO, "payload names a piece of %u bytes; %zu are left and %llu possible", len,
			rest->len - GP_CODEC_LENGTH, (unsigned long long)most);
	*out = (struct gp_span){rest->data + GP_CODEC_LENGTH, len};
	*rest = (struct gp_span){out->data + len, rest->len - GP_CODEC_LENGTH - len};
	return GP_OK;
}

static enum gp_status decode_transform(struct gp_codec_tree *t, struct gp_codec_node *node,
				       const struct gp_codec_pass *pass, struct gp_span in, float *x,
				       struct gp_err *err)
{
	struct gp_span side, part, rest = in;
	struct gp_err ignored;
	enum gp_status status = GP_OK;
	GP_TRY(take(&rest, node->side_bound, &side, err));
	if (fuses(node)) {
		int form;
		GP_TRY(gp_codec_head_read(rest, &form, err));
		part = (struct gp_span){rest.data + GP_CODEC_HEAD, rest.len - GP_CODEC_HEAD};
		if (form == GP_CODEC_CODED)
			return decode_fused(node, pass, part, x, err);
	}
	for (int i = 0; i < node->parts && status == GP_OK; i++) {
		part = rest;
		if (i + 1 < node->parts)
			GP_TRY(take(&rest, node->part[i]->bound, &part, err));
		status = decode_node(t, node->part[i], pass, part, node->tensor[i], err);
	}
	/* A wrapper whose part was stopped has to back up what it remembers, for gp_codec_undo. */
	if (status == GP_CANCELED && node->ops->kind == GP_CODEC_WRAPPER)
		(void)node->ops->join(node->state, pass, side, (const float *const *)node->tensor, x, &ignored);
	if (status != GP_OK)
		return status;
	return node->ops->join(node->state, pass, side, (const float *const *)node->tensor, x, err);
}

static enum gp_status decode_body(struct gp_codec_tree *t, struct gp_codec_node *node, const struct gp_codec_pass *pass,
				  struct gp_span in, float *x, struct gp_err *err)
{
	return node->parts ? decode_transform(t, node, pass, in, x, err)
			   : node->ops->decode(node->state, pass, in, x, err);
}

static enum gp_status decode_node(struct gp_codec_tree *t, struct gp_codec_node *node, const struct gp_codec_pass *pass,
				  struct gp_span in, float *x, struct gp_err *err)
{
	int form;
	if (node->ops->info.lossless)
		return decode_body(t, node, pass, in, x, err);
	GP_TRY(gp_codec_head_read(in, &form, err));
	const struct gp_span body = {in.data + GP_CODEC_HEAD, in.len - GP_CODEC_HEAD};
	if (form == GP_CODEC_CODED)
		return decode_body(t, node, pass, body, x, err);
	if (body.len != 4 * node->n)
		GP_FAIL(err, GP_PROTO, "payload in raw form has %zu bytes instead of %llu", in.len,
			(unsigned long long)(GP_CODEC_HEAD + 4 * node->n));
	get_tensor(t, x, body.data, node->n);
	pass_by(node, pass);
	return GP_OK;
}

/* Work that was queued before the payload turned out to be wrong still reads it, so the decoder waits for it. */
enum gp_status gp_codec_tree_decode(struct gp_codec_tree *t, const struct gp_codec_pass *pass, struct gp_span in,
				    float *x, struct gp_err *err)
{
	const bool staged = t->device != t->inside;
	struct gp_err why;
	gp_codec_tree_back_up(t, pass);
	enum gp_status status = decode_node(t, t->node, pass, in, staged ? t->staging : x, err);
	if (!t->device)
		return status;
	if (staged && status == GP_OK)
		t->device->ops->up(t->site, x, t->staging, t->node[0].n * sizeof *x);
	const enum gp_status finished = t->device->ops->finish(t->site, &why);
	if (finished == GP_OK)
		return status;
	if (err)
		*err = why;
	return finished;
}
