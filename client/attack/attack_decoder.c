/* SPDX-License-Identifier: Apache-2.0
 *
 * See attack_decoder.h. Test: tests/unit/test_attack.c
 */
#include "client/attack/attack_decoder.h"

#include <stdio.h>

#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_shape.h"

enum { CHANNELS = 32, CHANNELS_MOST = 256, HIDDEN = 512, LEVELS_MOST = 16 };

/* --- what is read ------------------------------------------------------------------------------------------------ */

static bool is_readable(const struct gp_shape *s)
{
	return s->ndim == 1 || s->ndim == 3;
}

/* Maps tell more than vectors, and large maps more than small ones. */
static bool is_larger(const struct gp_shape *a, const struct gp_shape *b)
{
	if (a->ndim != b->ndim)
		return a->ndim > b->ndim;
	return a->ndim == 3 && a->dim[0] * a->dim[1] > b->dim[0] * b->dim[1];
}

static bool fit_together(const struct gp_shape *a, const struct gp_shape *b)
{
	return a->ndim == b->ndim && (a->ndim == 1 || (a->dim[0] == b->dim[0] && a->dim[1] == b->dim[1]));
}

/* Returns the largest of the tensors; -1: none can be read. */
static int choose(const struct gp_shape *in, int count, uint64_t *read)
{
	int best = -1;
	for (int i = 0; i < count; i++)
		if (is_readable(&in[i]) && (best < 0 || is_larger(&in[i], &in[best])))
			best = i;
	*read = 0;
	for (int i = 0; i < count && best >= 0; i++)
		*read |= (uint64_t)(is_readable(&in[i]) && fit_together(&in[i], &in[best])) << i;
	return best;
}

/* --- layers ------------------------------------------------------------------------------------------------------ */

struct making {
	struct gp_graph *g;
	struct gp_shape picture;
	int layers;
	struct gp_err *err;
};

static const char *name_of(struct making *m, const char *what, char name[GP_NAME_MAX])
{
	snprintf(name, GP_NAME_MAX, "decoder.%d.%s", m->layers, what);
	return name;
}

static int normalize(struct making *m, int x, bool relu)
{
	char name[GP_NAME_MAX];
	x = x < 0 ? -1 : gp_graph_batch_norm(m->g, name_of(m, "norm", name), x, 1e-5f, 0.1f, m->err);
	if (relu && x >= 0)
		x = gp_graph_unary(m->g, GP_OP_RELU, name_of(m, "act", name), x, m->err);
	m->layers++;
	return x;
}

static int convolve(struct making *m, int x, int channels, bool last)
{
	char name[GP_NAME_MAX];
	if (x >= 0)
		x = gp_graph_conv(m->g, name_of(m, "conv", name), x, channels, 3, 1, 1, 1, last, m->err);
	return last ? x : normalize(m, x, true);
}

/* From n rows to `to`: a kernel and a stride for a transposed convolution that gives exactly so many. */
struct growth {
	int32_t kernel, stride, pad;
};

static struct growth growth(int64_t n, int64_t to)
{
	if (to == 2 * n)
		return (struct growth){4, 2, 1};
	if (to == 2 * n - 1)
		return (struct growth){3, 2, 1};
	const int32_t stride = (int32_t)(to / n);
	return (struct growth){(int32_t)(to - (n - 1) * stride), stride, 0};
}

static int grow(struct making *m, int x, int64_t height, int64_t width, int channels)
{
	char name[GP_NAME_MAX];
	struct gp_node n = {.op = GP_OP_CONV2D_TRANSPOSE};
	const struct gp_shape *from = &m->g->value[x].type.shape;
	const struct growth h = growth(from->dim[0], height), w = growth(from->dim[1], width);
	gp_set_conv_attr(&n, (struct gp_conv_attr){.out_channels = channels,
						   .kernel_h = h.kernel,
						   .kernel_w = w.kernel,
						   .stride_h = h.stride,
						   .stride_w = w.stride,
						   .pad_top = h.pad,
						   .pad_bottom = h.pad,
						   .pad_left = w.pad,
						   .pad_right = w.pad,
						   .groups = 1});
	x = gp_graph_append(m->g, n, name_of(m, "up", name), 1, &x, m->err);
	return normalize(m, x, true);
}

/* --- the two kinds ----------------------------------------------------------------------------------------------- */

static int64_t half(int64_t n)
{
	return (n + 1) / 2;
}

/* How often `to` has to be halved to come to n; -1: that does not lead there. */
static int halvings(int64_t n, int64_t to)
{
	int count = 0;
	for (; to > n && count < LEVELS_MOST; count++)
		to = half(to);
	return to == n ? count : -1;
}

static int64_t halved(int64_t n, int times)
{
	for (int i = 0; i < times; i++)
		n = half(n);
	return n;
}

static int channels_at(int level)
{
	const int channels = CHANNELS << (level < 4 ? level : 4);
	return channels < CHANNELS_MOST ? channels : CHANNELS_MOST;
}

static int from_maps(struct making *m, int x)
{
	const struct gp_shape s = m->g->value[x].type.shape, *to = &m->picture;
	const int rows = halvings(s.dim[0], to->dim[0]), columns = halvings(s.dim[1], to->dim[1]);
	const bool doubles = rows >= 0 && rows == columns;
	const int levels = doubles ? rows : s.dim[0] < to->dim[0] || s.dim[1] < to->dim[1];
	x = convolve(m, normalize(m, x, false), channels_at(levels), false);
	for (int level = levels - 1; level >= 0 && x >= 0; level--)
		x = grow(m, x, halved(to->dim[0], level), halved(to->dim[1], level), channels_at(level));
	return convolve(m, x, (int)to->dim[2], true);
}

static int from_vector(struct making *m, int x)
{
	char name[GP_NAME_MAX];
	x = normalize(m, x, false);
	if (x >= 0)
		x = gp_graph_linear(m->g, name_of(m, "linear", name), x, HIDDEN, false, m->err);
	x = normalize(m, x, true);
	if (x < 0)
		return -1;
	return gp_graph_linear(m->g, name_of(m, "linear", name), x, (int)gp_shape_elements(&m->picture), true, m->err);
}

static int add_inputs(struct making *m, const struct gp_shape *in, int count, uint64_t read)
{
	char name[GP_NAME_MAX];
	int value[GP_GRAPH_MAX_PORTS], inputs = 0;
	for (int i = 0; i < count; i++) {
		const struct gp_type type = {GP_F32, in[i]};
		if (!(read >> i & 1))
			continue;
		snprintf(name, sizeof name, "tensor%d", inputs);
		value[inputs] = gp_graph_add_input(m->g, name, &type, m->err);
		if (value[inputs++] < 0)
			return -1;
	}
	if (gp_graph_begin_block(m->g, "decoder", m->err) != GP_OK)
		return -1;
	return inputs == 1 ? value[0] : gp_graph_concat(m->g, "decoder.joined", inputs, value, m->err);
}

static enum gp_status build(struct making *m, const struct gp_shape *in, int count, uint64_t read, bool maps)
{
	int x = add_inputs(m, in, count, read);
	if (x >= 0)
		x = maps ? from_maps(m, x) : from_vector(m, x);
	return x < 0 ? m->err->code : gp_graph_finish(m->g, m->err);
}

enum gp_status gp_attack_decoder(const struct gp_shape *in, int count, const struct gp_shape *picture, uint64_t *read,
				 struct gp_graph **out, struct gp_err *err)
{
	uint64_t chosen;
	const int best = choose(in, count, &chosen);
	if (best < 0)
		GP_FAIL(err, GP_UNSUPPORTED,
			"no tensor at this cut is a map (height, width, channels) or a vector: there is no decoder for "
			"others");
	if (in[best].ndim == 3 && (in[best].dim[0] > picture->dim[0] || in[best].dim[1] > picture->dim[1]))
		GP_FAIL(err, GP_UNSUPPORTED,
			"the maps at this cut have %lldx%lld positions, more than the picture's %lldx%lld: there is no "
			"decoder for that",
			(long long)in[best].dim[0], (long long)in[best].dim[1], (long long)picture->dim[0],
			(long long)picture->dim[1]);
	struct making m = {.g = gp_graph_new_empty("decoder", err), .picture = *picture, .err = err};
	if (!m.g)
		return err->code;
	const enum gp_status status = build(&m, in, count, chosen, in[best].ndim == 3);
	if (status != GP_OK) {
		gp_graph_free(m.g);
		return status;
	}
	*read = chosen;
	*out = m.g;
	return GP_OK;
}
