/* SPDX-License-Identifier: Apache-2.0
 *
 * --batch-norm: how the batch norms of a model take their statistics in
 * training (common/graph/ops/op_batch_norm.h). Head, body and tail alike: the
 * mode is an attribute of their nodes, and goes to the server with the graph.
 *
 * Threads: the main thread. Test: tests/unit/test_norm_mode.c
 */
#ifndef GP_NORM_MODE_H
#define GP_NORM_MODE_H

#include "common/graph/ops/op_batch_norm.h"

#define GP_NORM_MODE_CHOICES "chunk|deferred|running|renorm[:r=3,d=5,warmup=STEPS]"
#define GP_NORM_MODE_TEXT    80

/* GP_USAGE says what is wrong with `text`. */
enum gp_status gp_norm_mode_parse(const char *text, struct gp_bn_attr *out, struct gp_err *err);
/* One text for each mode, with all its values: "renorm:r=3,d=5,warmup=0"; returns text. */
const char *gp_norm_mode_text(const struct gp_bn_attr *mode, char text[GP_NORM_MODE_TEXT]);

/* Whether training this graph normalizes by the statistics of chunks that are too small to be near the batch's, and moves
 * running statistics with each; `samples` are a chunk's. */
bool gp_norm_mode_suffers(const struct gp_graph *g, int samples);
#define GP_NORM_FEW_SAMPLES 16 /* below that */

#endif
