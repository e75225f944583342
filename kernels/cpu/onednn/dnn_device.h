/* SPDX-License-Identifier: Apache-2.0
 *
 * What the CPU device asks of oneDNN. Where oneDNN is not built in (GP_ONEDNN in
 * CMakeLists.txt), or the device does without (cpu_plan.h), there is no engine, and
 * every operation runs on own loops: the answers here are then that nothing was
 * to do. Only for kernels/cpu.
 *
 * Threads: one at a time calls into a plan (common/graph/device.h). Test: tests/unit/test_cpu_ops.c
 */
#ifndef GP_CPU_DNN_DEVICE_H
#define GP_CPU_DNN_DEVICE_H

#include "kernels/cpu/plan/cpu_plan.h"

#ifdef GP_ONEDNN
/* Makes the device's engine, unless it does without. */
enum gp_status gp_dnn_open(struct cpu_device *dev, struct gp_err *err);
void gp_dnn_close(struct cpu_device *dev);
/* Makes the plan's stream, where there is an engine. */
enum gp_status gp_dnn_begin(struct cpu_plan *p, struct gp_err *err);
void gp_dnn_end(struct cpu_plan *p);
/* What runs an operation on oneDNN; NULL: the own loops do. */
const struct cpu_op *gp_dnn_op(const struct cpu_device *dev, enum gp_op op);
/* c = a b, all of side x side. False where there is no engine, or it cannot. */
bool gp_dnn_multiply(const struct cpu_device *dev, float *c, const float *a, const float *b, int side);
#else
static inline enum gp_status gp_dnn_open(struct cpu_device *dev, struct gp_err *err)
{
	(void)dev;
	(void)err;
	return GP_OK;
}
static inline void gp_dnn_close(struct cpu_device *dev)
{
	(void)dev;
}
static inline enum gp_status gp_dnn_begin(struct cpu_plan *p, struct gp_err *err)
{
	(void)p;
	(void)err;
	return GP_OK;
}
static inline void gp_dnn_end(struct cpu_plan *p)
{
	(void)p;
}
static inline const struct cpu_op *gp_dnn_op(const struct cpu_device *dev, enum gp_op op)
{
	(void)dev;
	(void)op;
	return NULL;
}
static inline bool gp_dnn_multiply(const struct cpu_device *dev, float *c, const float *a, const float *b, int side)
{
	(void)dev;
	(void)c;
	(void)a;
	(void)b;
	(void)side;
	return false;
}
#endif

#endif
