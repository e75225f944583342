/* SPDX-License-Identifier: Apache-2.0
 *
 * oneDNN's engine and streams, and which operations run on it. See dnn_device.h. Test: tests/unit/test_cpu_ops.c
 */
#include "kernels/cpu/onednn/dnn_device.h"

#include <dnnl.h>

extern const struct cpu_op gp_cpu_dnn_conv2d, gp_cpu_dnn_conv2d_transpose, gp_cpu_dnn_linear;

enum gp_status gp_dnn_open(struct cpu_device *dev, struct gp_err *err)
{
	if (dev->own)
		return GP_OK;
	const dnnl_status_t status = dnnl_engine_create(&dev->engine, dnnl_cpu, 0);
	if (status != dnnl_success)
		return gp_err_set(err, GP_DEVICE, (int)status, __FILE__, __LINE__,
				  "oneDNN has no CPU engine (status %d)", (int)status);
	return GP_OK;
}

void gp_dnn_close(struct cpu_device *dev)
{
	dnnl_engine_destroy(dev->engine);
}

enum gp_status gp_dnn_begin(struct cpu_plan *p, struct gp_err *err)
{
	if (!p->dev->engine)
		return GP_OK;
	const dnnl_status_t status = dnnl_stream_create(&p->stream, p->dev->engine, dnnl_stream_default_flags);
	if (status != dnnl_success)
		return gp_err_set(err, GP_DEVICE, (int)status, __FILE__, __LINE__,
				  "oneDNN cannot make a stream (status %d)", (int)status);
	return GP_OK;
}

void gp_dnn_end(struct cpu_plan *p)
{
	dnnl_stream_destroy(p->stream);
}

const struct cpu_op *gp_dnn_op(const struct cpu_device *dev, enum gp_op op)
{
	if (!dev->engine)
		return NULL;
	switch (op) {
	case GP_OP_CONV2D:
		return &gp_cpu_dnn_conv2d;
	case GP_OP_CONV2D_TRANSPOSE:
		return &gp_cpu_dnn_conv2d_transpose;
	case GP_OP_LINEAR:
		return &gp_cpu_dnn_linear;
	default:
		return NULL;
	}
}

bool gp_dnn_multiply(const struct cpu_device *dev, float *c, const float *a, const float *b, int side)
{
	return dev->engine &&
	       dnnl_sgemm('N', 'N', side, side, side, 1.0f, a, side, b, side, 0.0f, c, side) == dnnl_success;
}
