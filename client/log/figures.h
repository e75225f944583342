/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine's figures (bytes, times, memory) as people and programs read them:
 * lines on stderr and the part of the closing JSON object that train and eval
 * share.
 *
 * Threads: the thread of the engine. Test: tests/e2e/eval_infer.sh
 */
#ifndef GP_FIGURES_H
#define GP_FIGURES_H

#include <jansson.h>

#include "client/engine/engine.h"

/* Between two looks at an engine's figures, `seconds` apart. */
struct gp_link_rate gp_link_rate(const struct gp_tcp_figures *before, const struct gp_tcp_figures *now, double seconds);
/* `part`: what was sent in `batches` batches, for the figures per batch. Prints nothing about a link that was not used. */
void gp_figures_print(const struct gp_engine_figures *f, const struct gp_account *part, uint64_t batches, FILE *to);
/* Adds act_up ... grad_down, wire, TCP, memory and so on to `object`; takes it. NULL when memory is out, or for NULL. What
 * was not measured, and what a local run does not have, is null. */
json_t *gp_figures_json(json_t *object, const struct gp_engine_figures *f, const struct gp_account *part,
			uint64_t batches);
/* JSON has no NaN: null. */
json_t *gp_json_number(double x);

#endif
